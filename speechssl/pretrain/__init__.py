"""Self-supervised pre-training: masked prediction, contrastive, and going on with it on distorted
speech."""

"""Pre-training of encoders: HuBERT's masked prediction and wav2vec 2.0's contrastive task."""

"""Speech encoders: loading, features of a layer, and pre-training."""

"""This package pre-trains speech encoders, from scratch or further on distorted speech: by masked
prediction (HuBERT), by contrast (wav2vec 2.0) or by codes that speakers share (Spin)."""

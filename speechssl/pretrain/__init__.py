"""This package pre-trains speech encoders, from scratch or further on distorted speech: by masked
prediction (HuBERT), by contrast (wav2vec 2.0), by codes that speakers share (Spin) or by the phones
of the clean signal (noisy students)."""

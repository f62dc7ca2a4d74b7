"""Speech encoders are pre-trained here, by masked prediction, contrast or codes that speakers
share, from scratch or further on distorted speech."""

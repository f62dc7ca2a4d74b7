"""The text side: text-pre-trained encoders, and symbols (speech units) mapped onto their tokens."""

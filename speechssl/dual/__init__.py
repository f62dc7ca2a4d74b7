"""DUAL (arXiv 2203.04911): spoken question answering on units, and the reader of spans that the other systems share.

data: windows, examples, batches. model: embedding, text encoder, two vectors. decode: windows -> one span. train: one reader
training. weights: models on disk. system: encode -> units -> reader -> seconds.
"""

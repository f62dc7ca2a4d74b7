"""DUAL (arXiv 2203.04911): spoken question answering on units, and the reader of spans that the
other systems share.

data      windows, examples, batches
model     embedding, text encoder, two vectors; on disk
train     training of all readers
teacher   units that learn from a text encoder what words are
system    encode -> units -> windows -> one span -> seconds
"""

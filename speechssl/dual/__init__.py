"""DUAL (arXiv 2203.04911) answers spoken questions from units; the other systems share its reader
of spans.

data      windows, examples, batches
model     embedding, text encoder, two vectors; on disk
train     training of all readers
teacher   units that learn from a text encoder what words are
system    encode -> units -> windows -> one span -> seconds
"""

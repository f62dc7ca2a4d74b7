"""The cascade: speech recognition, then question answering on words.

data: timed words, recognisers, long recordings in pieces, training examples. model: CTC head,
greedy decoding, alignment, recogniser. decode: beam search with an n-gram model. engines: Hugging
Face's. confusions: simulated errors. train: the CTC head, and the reader of words. system: what
answers questions.
"""

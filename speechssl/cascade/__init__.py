"""The cascade is speech recognition, then question answering on words.

data: timed words, recognisers, long recordings in pieces. model: CTC head, greedy decoding,
alignment, recogniser. decode: beam search with an n-gram model. engines: Hugging Face's. align:
times of known words. readers: text QA. train: the CTC head, its n-gram, and the reader of words.
system: what answers questions.
"""

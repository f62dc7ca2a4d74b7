"""The cascade: speech recognition, then question answering on words.

words: timed words, recognisers, long recordings in pieces. ctc: head, decoding, alignment. train: of a CTC head. decode, lm: beam
search with an n-gram model. engines: Hugging Face and PocketSphinx. confusions: simulated errors. text_qa: the reader of words.
system: what answers questions.
"""

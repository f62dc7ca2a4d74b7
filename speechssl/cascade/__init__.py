"""The cascade is speech recognition, then question answering on words.

data: timed words, recognisers, long recordings in pieces. model: CTC head, greedy decoding,
alignment, recogniser. ngrams, decode: n-gram models, and beam search with them. engines: Hugging
Face's. align, align_whisper: times of known words; align_corpus: those of a corpus. readers: text
QA. train, train_ngram, train_text_qa: the CTC head, its n-gram, and the reader of words. system:
answers questions.
"""

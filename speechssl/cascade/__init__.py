"""The cascade is speech recognition, then question answering on words.

data           timed words, the interface of recognisers, long recordings in pieces
model          CTC head, greedy decoding, alignment, recogniser
ngrams         n-gram models; decode: beam search with them
engines        recognisers of Hugging Face
align          times of known words; align_whisper: by Whisper; align_corpus: of a corpus
readers        text QA
train          trains the CTC head; train_ngram: its n-gram; train_text_qa: the reader of words
system         answers questions
"""

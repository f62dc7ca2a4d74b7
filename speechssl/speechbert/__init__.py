"""SpeechBERT (arXiv 1910.11559): a text encoder that reads audio words, vectors in the place of word pieces.

words: recordings cut into words. autoencoder: a word's features -> a vector near its text embedding. masking: masked words are
predicted, those of text and those of speech. reading: spans over audio words. train: the three stages. system: what answers.
carry: the same for another encoder. choosing: multiple choice.
"""

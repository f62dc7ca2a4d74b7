"""SpeechBERT (arXiv 1910.11559): a text encoder that reads audio words, vectors in the place of word pieces.

data: recordings cut into words, batches of the three stages. model: autoencoder of words, masked words, spans. decode: answers in
seconds. train: the stages. transfer: the same model for another encoder. system: what answers questions.
"""

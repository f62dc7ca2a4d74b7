"""SpeechBERT (arXiv 1910.11559) is a text encoder that reads audio words, vectors in the place of
word pieces.

data      recordings cut into words, batches of the three stages
model     autoencoder of words, masked words, the table of codes
train     the three stages, and the transfer to another encoder
system    answers questions; its spans are decoded as DUAL's (`dual.system`)
"""

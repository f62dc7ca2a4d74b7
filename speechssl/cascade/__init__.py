"""The cascade is speech recognition, then question answering on words.

data           timed words, the interface of recognisers, cuts of long recordings
model          the CTC head: greedy decoding, forced alignment, recogniser
ngrams         n-gram language models of words
decode         CTC beam search with an n-gram
engines        recognisers of Hugging Face
align          times of known words by a CTC recogniser
align_whisper  times of known words by Whisper
align_corpus   `speechssl align`
readers        text QA: readers trained here, and those of Hugging Face
train          `speechssl train ctc`
train_ngram    `speechssl train ngram`
train_text_qa  `speechssl train text-qa`
system         a recogniser and a reader joined to a system that answers questions
options        the options of these verbs
config         the old name of `options`
"""

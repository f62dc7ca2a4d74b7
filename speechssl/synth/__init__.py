"""Tiny trees in the very layout of the published corpora of spoken QA, with invented content: to try a recipe without its corpus.

`telling.py` invents and speaks, a file a corpus writes what it told as that corpus is published, `making.py` is the verb.
"""

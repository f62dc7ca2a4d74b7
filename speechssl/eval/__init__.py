"""Evaluate systems and encoders under conditions of noise and speech, and compare their scores.

`spoken_qa.py` has the loop over systems and conditions, in three steps with files between them:
`encode.py`, `predict.py`, `score.py`.
"""

"""Spoken question answering: choosing spans and scoring them, and the systems that predict them.

spans: sliding windows and the best span over all of them.
choice, choice_batches, choice_train: multiple choice on units and on words; choice_metrics: its scores and baselines.
weights: span models on disk; int8: their matrices; differences: a reader as what differs from another.
metrics: scores on seconds (FF1, AOS) and on text (EM, F1, WER).
"""

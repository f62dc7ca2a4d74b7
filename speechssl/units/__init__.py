"""Discrete units are made here: k-means codebooks, run-length units, and their measures."""

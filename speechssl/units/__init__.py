"""Discrete units: k-means codebooks, run-length units, and how good they are."""

"""Tidy results of systems under conditions, and how sure they are.

results: one row a measured value, in `results.jsonl`. bootstrap: intervals and paired comparisons, clustered by
passage.
"""

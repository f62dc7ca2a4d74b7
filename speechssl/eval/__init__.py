"""Systems and encoders under conditions: scores, comparisons, tables. `spoken_qa.py` has the
loop: encode -> predict -> score."""

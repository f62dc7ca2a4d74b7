"""Systems and encoders under conditions: scores, comparisons, tables. `run.py` has the loop: encode
-> cache -> score."""

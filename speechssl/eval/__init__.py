"""Systems and encoders under conditions: scores with intervals, comparisons, tables.

run.py               the evaluation loop: encode -> cache -> score; conditions, and frozen mixtures
spoken_qa.py         systems x conditions on questions, with options or without; imported answers; errors of a recogniser, fitted
retrieval.py         first-stage retrieval: every question ranks the passages
scores.py            a line a question, which comparisons are made from
compare.py           systems paired on the same questions, where their lines cross, missed answers; tables and JSON of it
grid.py              encoders x tasks x conditions, and the tasks
robustness.py        the grid from the command line; what noise costs; its tables
superb.py            the SUPERB benchmark and its tables; superb_speed.py: what caching gains
published.py         what others published
"""

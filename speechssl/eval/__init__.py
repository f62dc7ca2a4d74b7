"""Tidy results of systems and encoders under conditions, and how sure they are.

results: one row a measured value, in `results.jsonl`. bootstrap: intervals and paired comparisons, clustered by passage.
spoken_qa, run, listening: systems x conditions on questions, and the report.
choice, choosers: the same for questions with options.

question_scores: what is kept of every question for comparisons; answer_types: the rule for kinds of answers.
recognised: the errors of a recogniser, fitted. comparison: systems paired on the same questions; crossing: where their lines cross;
error_analysis: which answers are missed; comparison_tables, comparing: what is written of it.

The robustness grid, encoders x tasks x conditions:

    subjects            encoders, and how each task is made ready for one
    grid_tasks          what exists already as tasks: units, DUAL, the cascade
    mixtures            noise frozen before anything is heard
    grid                a file of scores for every cell
    resampling          quantities with their paired bootstrap
    degradation         what noise costs, and how much of it an encoder saves; retained: DUAL beside the cascade
    robustness_tables   the lecture's table and what lies behind it
    robustness          a plan in, all of it out
"""

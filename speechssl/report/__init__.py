"""Tidy rows of numbers and a few examples to listen to, in one self-contained HTML page.

`results.py` of the evaluation room writes the rows; this room only arranges and draws them:

    series.py     which systems and conditions there are, in which order, with which names and colours
    figures.py    the figures, as inline SVG
    waveform.py   envelopes, compact audio, the geometry of spans along a passage
    examples.py   the records behind the listening section, and their JSON file
    summary.py    the opening paragraph, written from the numbers
    robustness.py           the rows of a robustness grid: a panel a task, a series an encoder
    robustness_figures.py   its heat map and curves
    superb.py               what a SUPERB run left beside its rows; superb_rows.py: its rows
    superb_tables.py        clean speech, published scores, noise; superb_summary.py: the small ones; published.py: facts
    superb_figures.py       layer weights and learning rates; speaker_figures.py: DET, who spoke when; confusion.py: matrices
    page.py       `build_report`: everything together through template.html
"""

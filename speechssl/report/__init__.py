"""Tidy rows of numbers and a few examples to listen to, in one self-contained HTML page.

`results.py` of the evaluation room writes the rows; this room only arranges and draws them:

    series.py     which systems and conditions there are, in which order, with which names and colours
    figures.py    the figures, as inline SVG
    waveform.py   envelopes, compact audio, the geometry of spans along a passage
    examples.py   the records behind the listening section, and their JSON file
    summary.py    the opening paragraph, written from the numbers
    robustness.py           the rows of a robustness grid: a panel a task, a series an encoder
    robustness_figures.py   its heat map and curves
    page.py       `build_report`: everything together through template.html
"""

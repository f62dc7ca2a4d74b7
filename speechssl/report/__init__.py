"""Rows of numbers and a few examples to listen to, in one self-contained HTML page.

page.py         a page is a list of sections; template.html
figures.py      rows arranged (series, conditions, cells), and what all figures share: matplotlib as inline SVG
spoken_qa.py    the section of question answering; listening.py: its examples
robustness.py   the section of a robustness grid
superb.py       the section of a SUPERB run, and what it left beside its rows; superb_figures.py
build.py        `speechssl report`: the page of the folder of an evaluation
comparison.py   `speechssl compare`: the page of systems beside each other
"""

"""Rows of numbers and a few examples to listen to, in one self-contained HTML page.

page.py         a page is a list of sections; template.html
figures.py      rows arranged (series, conditions, cells), and matplotlib figures as inline SVG
spoken_qa.py    the section of question answering; qa_figures.py, listening.py: its figures and examples
robustness.py   the section of a robustness grid
superb.py       what a SUPERB run left beside its rows; superb_page.py, superb_figures.py: its section
published.py    what others published
build.py        `speechssl report`: the page of the folder of an evaluation
comparison.py   `speechssl compare`: the page of systems beside each other
"""

"""Rows of numbers and a few examples to listen to, in one self-contained HTML page.

page.py         a page is a list of sections: tables, figures, examples; template.html, page.css, page.js
figures.py      rows arranged (series, conditions, cells), and what all figures share: matplotlib as inline SVG
spoken_qa.py    the section of question answering, with all predictions in one table and how answers err
robustness.py   the section of a robustness grid
superb.py       the section of a SUPERB run, from its rows and what it left beside them
text_side.py    the section of the text side: gains, curves, loss surfaces
build.py        `speechssl report`: the page of the folder of an evaluation
comparison.py   `speechssl compare`: the page of systems beside each other
"""

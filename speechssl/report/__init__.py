"""Rows of numbers and a few examples to listen to, in one self-contained HTML page: `page.py`
writes it from sections."""

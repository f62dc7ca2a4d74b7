"""Serve a page on this machine that answers questions from recordings: `page.py`."""

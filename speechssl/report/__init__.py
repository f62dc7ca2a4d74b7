"""Write results, as tables and figures, and questions to listen to into one self-contained HTML
page: `build.py` makes the sections of an evaluation, `comparison.py` those of `speechssl compare`,
and `page.py` writes them."""

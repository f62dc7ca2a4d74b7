"""Write the page of a folder of results: charts beside what was published, and all tables."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from speechssl.artifacts import hold_output
from speechssl.cli import script
from speechssl.errors import InputError
from speechssl.options import argument
from speechssl.report.build import describe_machine
from speechssl.report.page import write_page
from speechssl.results import read_rows
from textside.options import RESULTS
from textside.section import TITLE, read_lectures, text_side_section


@dataclass(frozen=True, kw_only=True)
class Page:
    """write report.html from the results of the text side in a folder

    One self-contained page of what is there, of a run in progress too.

      python recipes/text_side/page.py exp/text_side
    """

    results: Path = argument(RESULTS)


def write_text_page(o: Page) -> dict[str, str]:
    """Write `o.results`/report.html; its place. Raises InputError where there are no results."""
    page = o.results / "report.html"
    with hold_output(o.results):
        rows = read_rows(o.results / "results.jsonl")
        lectures = read_lectures(o.results, rows)
        if not lectures.rows:
            raise InputError(f"{o.results / 'results.jsonl'} has no results of the text side")
        write_page(page, TITLE, [text_side_section(lectures)], describe_machine(), rows=rows)
    print(f"{page}: open it in a browser")
    return {"page": str(page)}


if __name__ == "__main__":
    sys.exit(script(write_text_page, Page))

"""The headline tables say what the cards of the set that ships say: all of it in
recipes/units/RESULTS.md, a part in README.md."""

import importlib
from pathlib import Path

from speechssl.artifacts import read_json

picture = importlib.import_module("recipes.picture")

ROOT = Path(__file__).parents[2]
COLUMNS = {  # condition of a card -> column of the table in RESULTS.md
    "clean": "clean",
    "pink 5 dB": "pink noise, 5 dB",
    "kitchen 5 dB": "kitchen, 5 dB",
    "held-out-words": "new words",
    "festival": "festival",
}
README_COLUMNS = {  # condition -> column of the table in README.md, which has no kitchen
    "clean": "clean, 359 questions",
    "pink 5 dB": "pink noise, 5 dB",
    "held-out-words": "new words, 352",
    "festival": "by festival (3 voices), 359",
}


def scores_of_cards() -> dict[tuple[str, str], str]:
    """Return "value [low, high]" of FF1 by system and condition."""
    scores = {}
    for card in (ROOT / "speechssl/models/people-en").glob("*/card.json"):
        for key, score in read_json(card).get("scores", {}).items():
            system, metric, condition = key.replace(", ", " ", 1).split(" ", 2)
            if metric == "ff1" and condition in COLUMNS:
                interval = f"{score['low']:.1f}, {score['high']:.1f}"
                scores[system, condition] = f"{score['value']:.1f} [{interval}]"
    return scores


def cells_of(page: str, corner: str) -> dict[tuple[str, str], str]:
    """Return the cells of the first table whose first column is called `corner`, by the headings of
    row and column."""
    lines = (ROOT / page).read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"| {corner} |"))
    _, *columns = (cell.strip() for cell in lines[first].strip("|").split("|"))
    cells = {}
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        row, *values = (cell.strip() for cell in line.strip("|").split("|"))
        for column, value in zip(columns, values, strict=True):
            cells[row.partition(" (")[0], column] = value
    return cells


def test_the_table_of_the_set_that_ships_agrees_with_the_cards():
    cells, scores = cells_of("recipes/units/RESULTS.md", "FF1"), scores_of_cards()
    for (system, condition), score in scores.items():
        assert cells[system, COLUMNS[condition]] == score
    assert len(scores) == 21  # dual and speechbert in five, the cascades in four, text in three


def test_the_headline_table_agrees_with_the_cards():
    cells, scores = cells_of("README.md", "MiniSQA"), scores_of_cards()
    checked = 0
    for (system, condition), score in scores.items():
        row = "text: true words" if system == "text" else system
        cell = cells.get((row, README_COLUMNS.get(condition, "")), "")
        if cell:
            assert cell.startswith(score)
            checked += 1
    assert checked == 11  # dual and cascade-ctc in four columns, text in three


def test_the_picture_has_every_score_of_the_first_table():
    real = picture.read_real_questions(ROOT / "README.md")
    assert list(real.columns) == ["system", "speech", "value", "low", "high"]
    assert len(real) == 9  # five systems by two synthesisers, one of them by one
    assert (real.low <= real.value).all()
    assert (real.value <= real.high).all()


def test_every_score_of_the_first_table_stands_in_the_tables_of_the_recipe():
    tables = (ROOT / "recipes/real_questions/RESULTS.md").read_text().replace("**", "")
    for cell in cells_of("README.md", "SQuAD").values():
        for score in picture.CELL.finditer(cell):
            assert f"{score[1]} [{score[2]}, {score[3]}]" in tables

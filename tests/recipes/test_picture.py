"""The tables of results have the scores that the cards of the set that ships have: all of them in
recipes/units/RESULTS.md, a part in README.md; and the picture has those of README.md."""

import importlib
from pathlib import Path

picture = importlib.import_module("recipes.picture")

ROOT = Path(__file__).parents[2]
RESULTS = "recipes/units/RESULTS.md"
COLUMNS = {  # condition of a card -> column of the table in RESULTS
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


def read_ff1_of_cards() -> dict[tuple[str, str], str]:
    """Return (system, condition) -> FF1 as the tables write it: "value [low, high]"."""
    scores = {}
    for score in picture.read_scores(ROOT / "speechssl/models/people-en").itertuples():
        if score.metric == "ff1" and score.condition in COLUMNS:
            text = f"{score.value:.1f} [{score.low:.1f}, {score.high:.1f}]"
            scores[score.system, score.condition] = text
    return scores


def read_cells(page: str, heading: str) -> dict[tuple[str, str], str]:
    """Read the table with this heading; a system's remark in brackets is left out."""
    cells = {}
    for (row, column), cell in picture.read_table(ROOT / page, heading).items():
        cells[row.partition(" (")[0], column] = cell
    return cells


def test_the_table_of_the_set_that_ships_agrees_with_the_cards():
    cells = read_cells(RESULTS, "FF1")
    scores = read_ff1_of_cards()
    for (system, condition), score in scores.items():
        assert cells[system, COLUMNS[condition]] == score
    assert len(scores) == 21  # dual and speechbert in five, the cascades in four, text in three


def test_the_table_minisqa_of_the_readme_agrees_with_the_cards():
    cells = read_cells("README.md", "MiniSQA")
    compared = 0
    for (system, condition), score in read_ff1_of_cards().items():
        row = "text: true words" if system == "text" else system
        cell = cells.get((row, README_COLUMNS.get(condition, "")), "")
        if cell:
            assert cell.startswith(score)
            compared += 1
    assert compared == 11  # dual and cascade-ctc in four columns, text in three


def test_the_picture_has_every_score_of_the_table_squad_which_are_those_of_the_recipe():
    real = picture.read_real_questions(ROOT / "README.md")
    assert list(real.columns) == ["system", "speech", "value", "low", "high"]
    assert len(real) == 9  # five systems by two synthesisers, one of them by one
    assert (real.low <= real.value).all()
    assert (real.value <= real.high).all()

    tables = (ROOT / "recipes/real_questions/RESULTS.md").read_text().replace("**", "")
    for cell in read_cells("README.md", "SQuAD").values():
        for score in picture.CELL.finditer(cell):
            assert score[0] in tables

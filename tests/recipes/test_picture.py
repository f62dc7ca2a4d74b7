"""README's picture and headline table say what the cards of the set that ships say."""

from pathlib import Path

from speechssl.artifacts import read_json

ROOT = Path(__file__).parents[2]


def test_the_headline_table_agrees_with_the_cards():
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| ")]
    checked = set()
    for card in (ROOT / "speechssl/models/people-en").glob("*/card.json"):
        for key, score in read_json(card).get("scores", {}).items():
            system, metric, condition = key.replace(", ", " ", 1).split(" ", 2)
            if metric == "ff1" and condition in (
                "clean",
                "pink 5 dB",
                "kitchen 5 dB",
                "held-out-words",
                "festival",
            ):
                row = next(row for row in rows if row.startswith(f"| {system} |"))
                assert f"{score['value']:.1f} [{score['low']:.1f}, {score['high']:.1f}]" in row, key
                checked.add((system, condition))
    assert len(checked) == 25  # systems in clean speech, two noises, of new words, and by festival

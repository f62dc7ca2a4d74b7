"""Questions about passages as a recogniser would have heard them."""

import random

import mishear
import pytest
from confusions import fit_confusions

from speechssl.data.squad import Paragraph, SquadAnswer, SquadQa

CONTEXT = "李先生住在臺南，他在1786年去了 New York。"
LETTERS = "李先生住在臺南他年去了"


@pytest.fixture(scope="module")
def model():
    """Fit a recogniser that takes 南 for 男 four times of five."""
    rng = random.Random(0)
    pairs = []
    for _ in range(200):
        text = "".join(rng.choice(LETTERS) for _ in range(20))
        heard = "".join("男" if c == "南" and rng.random() < 0.8 else c for c in text)
        pairs.append((text, heard))
    return fit_confusions(pairs, "zh")


def test_what_is_not_misheard_keeps_its_place(model):
    text, places = mishear.mishear(model, CONTEXT, 0.0, "a", 0)
    assert text == CONTEXT
    offset = CONTEXT.index("臺南")
    assert places[offset : offset + 3] == [offset, offset + 1, offset + 2]
    assert len(places) == len(CONTEXT) + 1
    # a border inside a number moves to its beginning
    assert places[CONTEXT.index("786")] == CONTEXT.index("1786")


def test_an_answer_is_what_stands_where_it_stood(model):
    answer = SquadAnswer("臺南", CONTEXT.index("臺南"))
    paragraph = Paragraph(CONTEXT, (SquadQa("李先生住在哪裡?", "q", (answer,)),), id="1-1")
    heard = set()
    for seed in range(30):
        context, qas = mishear.mishear_paragraph(model, paragraph, 0.1, seed)
        assert "，" in context
        for qa in qas:
            (only,) = qa["answers"]
            assert context.startswith(only["text"], only["answer_start"])
            heard.add(only["text"])
    assert "臺男" in heard


def test_half_of_the_articles_is_drawn_with_all_their_passages():
    passages = [f"{article}-{number}" for article in range(10) for number in range(3)]
    drawn = mishear.draw_articles(passages, 0)
    articles = {name.partition("-")[0] for name in drawn}
    assert len(articles) == 5
    assert len(drawn) == 3 * len(articles)

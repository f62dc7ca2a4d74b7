"""Tasks: made of real text without leaks between splits, GLUE's as published, damaged ones refused; metrics of weighted means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import matthews_corrcoef

from speechssl.errors import InputError
from speechssl.text_side.config import SentenceTasks
from speechssl.text_side.tasks import MCC, SPEARMAN, SPLITS, columns, load_task, make_sentence_tasks, value

from ..files import read_lines


def words(document: int, sentence: int) -> list[str]:
    """Nine words that no other sentence has but for the first."""
    return ["The", *(f"w{document}x{sentence}x{i}" for i in range(8))]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for document in range(12):
        paragraphs = [". ".join(" ".join(words(document, 4 * p + s)) for s in range(4)) + "." for p in range(5)]
        (folder / f"{document}.txt").write_text("\n\n".join(paragraphs))
    return folder


def made(texts: Path, **changes: int) -> Path:
    out = texts.parent / "tasks"
    make_sentence_tasks(SentenceTasks(source=texts, out=out, **{"train": 40, "test": 10, "topics": 3} | changes))
    return out


def documents(line: dict[str, str]) -> set[str]:
    return {word.removeprefix("w").split("x")[0] for word in f"{line['text']} {line.get('pair', '')}".split() if "x" in word}


def test_tasks_of_text_hold_what_they_say_and_share_no_document(texts: Path) -> None:
    out = made(texts)
    for name in ("order", "overlap"):
        lines = {split: read_lines(out / name / f"{split}.jsonl") for split in SPLITS}
        found = {split: set().union(*map(documents, some)) for split, some in lines.items()}
        assert not found["train"] & found["test"] and not found["train"] & found["dev"] and not found["dev"] & found["test"]
        assert [len(lines[split]) for split in SPLITS] == [40, 10, 10]
        for line in lines["train"]:
            first, second = (text.split()[-1].rstrip(".").split("x") for text in (line["text"], line["pair"]))
            if name == "order":
                step = int(second[1]) - int(first[1])
                assert (step, line["label"]) in ((1, "in order"), (-1, "exchanged"))
            else:
                assert len(line["pair"].split()) == 4
                assert (line["pair"].split()[1].split("x")[1] == first[1]) == (line["label"] == "inside")
                assert documents(line) == {first[0].removeprefix("w")}
        assert 8 < sum(line["label"] in ("in order", "inside") for line in lines["train"]) < 32
    topic = load_task(out / "topic")
    assert len(topic.classes) == 3 and all(e.pair is None for e in topic.splits["train"])
    texts_of = {split: {e.text for e in topic.splits[split]} for split in SPLITS}
    assert not texts_of["train"] & texts_of["test"]
    assert made(texts) == out  # once
    with pytest.raises(InputError, match="made from other inputs"):
        made(texts, seed=1)


def test_a_text_of_few_documents_makes_no_tasks(texts: Path) -> None:
    for path in sorted(texts.glob("*.txt"))[2:]:
        path.unlink()
    with pytest.raises(InputError, match="has 2 documents with sentences of 6 words; the tasks need at least 3"):
        made(texts)
    assert not (texts.parent / "tasks").exists()


GLUE = {
    "CoLA": ("", ["a\t1\t\tHe ran.", "a\t0\t*\tRan he the."] * 10, "dev.tsv", ("He ran.", None)),
    "SST-2": ("sentence\tlabel", ['a "fine film\t1', "dull\t0"] * 10, "dev.tsv", ('a "fine film', None)),
    "RTE": (
        "index\tsentence1\tsentence2\tlabel",
        ["0\tA.\tB.\tentailment", "1\tC.\tD.\tnot_entailment"] * 10,
        "dev.tsv",
        ("A.", "B."),
    ),
    "STS-B": ("x\tsentence1\tsentence2\tscore", ["0\tA.\tB.\t4.5", "1\tC.\tD.\t0.0"] * 10, "dev.tsv", ("A.", "B.")),
    "MNLI": (
        "i\tsentence1\tsentence2\tgold_label",
        ["0\tA.\tB.\tneutral", "1\tC.\tD.\tentailment", "1\tC.\tD.\tcontradiction"] * 10,
        "dev_matched.tsv",
        ("A.", "B."),
    ),
}


@pytest.mark.parametrize("name", GLUE)
def test_tasks_of_glue_are_read_as_they_are_published(name: str, tmp_path: Path) -> None:
    head, rows, dev, (text, pair) = GLUE[name]
    (tmp_path / name).mkdir()
    for file, some in (("train.tsv", rows), (dev, rows[:3])):
        (tmp_path / name / file).write_text("\n".join(filter(None, [head, *some])) + "\n")
    task = load_task(tmp_path / name)
    assert (task.splits["test"][0].text, task.splits["test"][0].pair) == (text, pair)
    assert len(task.splits["train"]) == len(rows) - len(rows) // 10 and len(task.splits["dev"]) == len(rows) // 10
    assert (task.metric, len(task.classes)) == {"CoLA": (MCC, 2), "STS-B": (SPEARMAN, 0), "MNLI": ("accuracy", 3)}.get(
        name, ("accuracy", 2)
    )
    (tmp_path / name / dev).write_text("nothing\tof\tit\n")
    with pytest.raises(InputError, match="GLUE"):
        load_task(tmp_path / name)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"text": "a", "label": 1}', "has one label alone"),
        ('{"text": "a"}', r"train.jsonl:1 has no label"),
        ("", "has no examples"),
        ('{"id": "x", "text": "a", "label": 1}\n{"id": "x", "text": "b", "label": 2}', r"train.jsonl:2: the id x is also that of"),
        ('{"text": "a", "label": "x"}\n{"text": "a", "label": "y"}', r"test.jsonl:1 has the label 'z', which train.jsonl does not"),
    ],
)
def test_a_damaged_task_is_one_sentence(lines: str, message: str, tmp_path: Path) -> None:
    for split in SPLITS:
        (tmp_path / f"{split}.jsonl").write_text(lines if split != "test" or not lines else '{"text": "a", "label": "z"}')
    with pytest.raises(InputError, match=message):
        load_task(tmp_path)


def test_what_is_no_task_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no task; give a folder with train.jsonl"):
        load_task(tmp_path)


def test_metrics_of_means_are_those_of_scikit_learn_and_scipy() -> None:
    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(2, size=(2, 200))
    assert value(MCC, columns(MCC, gold, predicted).mean(0)) == pytest.approx(matthews_corrcoef(gold, predicted))
    weights = rng.integers(3, size=200)
    drawn = np.repeat(np.arange(200), weights)
    means = weights @ columns(MCC, gold, predicted) / weights.sum()
    assert value(MCC, means) == pytest.approx(matthews_corrcoef(gold[drawn], predicted[drawn]))
    a = rng.normal(size=200).round(1)
    b = a + rng.normal(size=200)
    assert value(SPEARMAN, columns(SPEARMAN, a, b).mean(0)) == pytest.approx(spearmanr(a, b).statistic)
    assert value("accuracy", columns("accuracy", gold, predicted).mean(0)) == pytest.approx((gold == predicted).mean())
    assert value(MCC, columns(MCC, gold, np.ones(200)).mean(0)) == 0

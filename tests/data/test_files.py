"""Ids as names of files, and recordings joined of pieces without drift."""

import json
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import example, given
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE, read_audio, read_native, resample, write_clip
from speechssl.data.files import safe_name
from speechssl.data.prepare import join, write_joined
from speechssl.data.recordings import draw, list_recordings, source_card
from speechssl.data.records import data_hash
from speechssl.data.tables import read_csv, read_parquet

from ..files import refused


def test_plain_ids_name_their_files_and_others_have_names_of_their_own():
    assert all(
        safe_name(name) == name for name in ("p", "tpo_1-lecture_2", "5733be284776f41900661182")
    )
    names = ["a/b", "a_b", "A_b", "../a", ".", "", "x" * 300, "問題", "問題二", "a b", "\ud800"]
    files = [safe_name(n) for n in names]
    assert len(set(map(str.lower, files))) == len(names) and all(
        "/" not in f and 0 < len(f) < 120 and f != "." for f in files
    )


# ---- recordings in pieces

RATES = (8_000, 16_000, 22_050, 24_000, 44_100)


def noise(n, seed=0):
    return (0.1 * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


@given(st.sampled_from(RATES), st.lists(st.integers(1, 3_000), min_size=1, max_size=27))
def test_pieces_of_one_rate_are_the_whole_resampled_once(rate, lengths):
    pieces = [noise(n, seed) for seed, n in enumerate(lengths)]
    samples, joined = join([(piece, rate) for piece in pieces])
    assert np.array_equal(samples, resample(np.concatenate(pieces), rate, SAMPLE_RATE))
    assert joined.samples == len(samples) == ceil(sum(lengths) * SAMPLE_RATE / rate)
    assert joined.starts == tuple(Fraction(sum(lengths[:k]), rate) for k in range(len(lengths) + 1))
    for k, length in enumerate(lengths):
        assert joined.length(k) == length / rate
        assert joined.move_to_whole(k, 0.25) == float(
            Fraction(sum(lengths[:k]), rate) + Fraction(1, 4)
        )


@given(
    st.lists(st.tuples(st.integers(200, 3_000), st.sampled_from(RATES)), min_size=1, max_size=27)
)
# 218.4 and 111.4 samples each: rounded one by one they would lose 10
@example([(301, 22_050), (307, 44_100)] * 13)
def test_rates_may_change_and_still_nothing_drifts(parts):
    """A click in the middle of every piece is where the exact beginning of the piece says, in the
    last as in the first."""
    pieces = []
    for n, rate in parts:
        piece = np.zeros(n, np.float32)
        piece[n // 2] = 0.5
        pieces.append((piece, rate))
    samples, joined = join(pieces)
    assert (
        len(samples)
        == joined.samples
        == ceil(sum(Fraction(n, rate) for n, rate in parts) * SAMPLE_RATE)
    )
    for k, (n, rate) in enumerate(parts):
        low, high = (round(joined.move_to_whole(k, t) * SAMPLE_RATE) for t in (0.0, n / rate))
        peak = low + int(np.abs(samples[low:high]).argmax())
        assert abs(peak - joined.move_to_whole(k, n // 2 / rate) * SAMPLE_RATE) <= 2


@pytest.fixture
def sentences(tmp_path):
    paths = [tmp_path / f"s{k}.wav" for k in range(3)]
    for k, path in enumerate(paths):
        write_clip(path, noise(5_000 + 333 * k, k), 0.0, 1.0, 22_050)
    return paths


def test_a_joined_passage_is_written_once(sentences, tmp_path, monkeypatch):
    out = tmp_path / "out" / "passage.flac"
    joined = write_joined(sentences, out)
    assert joined.lengths == (5_000, 5_333, 5_666) and soundfile.info(out).samplerate == SAMPLE_RATE
    assert len(read_audio(out)) == joined.samples
    with monkeypatch.context() as patched:
        patched.setattr(
            "speechssl.data.prepare.read_native", lambda _: pytest.fail("this was joined before")
        )
        assert write_joined(sentences, out) == joined
    out.with_suffix(".json").unlink()  # what a kill left is joined again, and other recordings are
    assert write_joined(sentences, out) == joined
    assert (
        write_joined(sentences[:2], out).lengths == joined.lengths[:2]
        and len(read_audio(out)) < joined.samples
    )


def test_a_real_mp3_is_as_long_as_what_is_decoded(shared, tmp_path):
    """NMSQA's have no count of their frames: the header guesses 10.543 s, decoding gives 10.536 s;
    over 27 this is 0.19 s."""
    path = shared("nmsqa", "context-34_4_4.mp3")
    samples, rate = read_native(path)
    assert (len(samples), rate) == (252_864, 24_000)
    joined = write_joined([path] * 27, tmp_path / "p.flac")
    assert joined.starts[26] == Fraction(26 * 252_864, 24_000) and joined.samples == pytest.approx(
        27 * 10.536 * SAMPLE_RATE, abs=1
    )
    start, end = (round(joined.move_to_whole(26, t) * SAMPLE_RATE) for t in (7.44, 8.14))
    original = resample(samples, rate, SAMPLE_RATE)[
        round(7.44 * SAMPLE_RATE) : round(8.14 * SAMPLE_RATE)
    ]
    assert np.corrcoef(read_audio(tmp_path / "p.flac")[start:end], original)[0, 1] > 0.999


# ---- sources of recordings: corpora, manifests, folders and files; every id once, and one
# sentence where nothing is found


@pytest.fixture
def folder(tmp_path):
    """A function (names of empty files) -> the folder that holds them."""

    def make(*names):
        for name in names:
            path = tmp_path / "data" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
        return tmp_path / "data"

    return make


def ids(*arguments, **options):
    return [r.id for r in list_recordings(*arguments, **options)]


def test_a_split_gives_passages_then_their_questions(mini_corpus):
    root = mini_corpus()
    assert ids(root, "train") == ["p0", "p1", "p2", "q0", "q1", "q2"]
    assert ids(root, "train", passages=2) == ["p0", "p1", "q0", "q1"]
    first = list_recordings(root, "train")[0]
    assert first.path == root / "train/audio/p0.flac" and first.seconds == 1.0
    assert source_card(root, "train", 2) == {
        "corpus": data_hash(root, "train"),
        "split": "train",
        "passages": 2,
    }
    assert source_card(root, None, None) == {}
    refused("--split train", list_recordings, root)
    refused("no passages.jsonl.*train", list_recordings, root, "dev")
    path = root / "train/questions.jsonl"
    path.write_text(path.read_text().replace('"q1"', '"p1"'))
    refused("the id p1 to .*make ids unique", list_recordings, root, "train")


# ---- folders


def test_a_folder_is_read_however_deep_in_the_order_of_ids(folder, capsys):
    root = folder(
        "b/2.WAV",
        "b/10.mp3",
        "a.flac",
        "z.ogg",
        "b/notes.txt",
        ".hidden.wav",
        ".git/x.wav",
        "b/._2.WAV",
    )
    found = list_recordings(root)
    assert [r.id for r in found] == ["a", "b/10", "b/2", "z"]
    assert found[2].path == root / "b/2.WAV" and found[2].seconds is None
    assert ids(root / "b/10.mp3") == ["10"]  # one file is a source too
    folder("c.opus", "d.aif", "e.aiff", "f.au", "e.m4a", "f/g.M4A", "h.sph", ".j.m4a")
    assert ids(root) == ["a", "b/10", "b/2", "c", "d", "e", "f", "z"]
    assert "passed over 2 .m4a, 1 .sph; convert" in capsys.readouterr().err


# ---- manifests


def test_a_jsonl_manifest_keeps_its_order(tmp_path):
    lines = [
        {"audio": "x/b.wav", "id": "second"},
        {"audio": "/abs/a.flac", "seconds": 2},
        {"audio": "c.v1.wav", "id": 7},
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert [(r.id, str(r.path), r.seconds) for r in list_recordings(tmp_path / "m.jsonl")] == [
        ("second", str(tmp_path / "x/b.wav"), None),
        ("/abs/a", "/abs/a.flac", 2.0),
        ("7", str(tmp_path / "c.v1.wav"), None),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "m.jsonl:2 is not JSON"),
        ('{"path": "a.wav"}', "m.jsonl:2: the record has no `audio`"),
        ('{"audio": "b.wav", "seconds": "?"}', "m.jsonl:2: `seconds`"),
        ('{"audio": "../b.wav"}', "m.jsonl:2 names ../b.wav, which leads out of"),
        ('{"audio": "a.flac"}', r"the id a to \S*a.wav \(line 1\) and \S*a.flac \(line 2\)"),
    ],
)
def test_bad_lines_of_a_manifest_are_named(tmp_path, line, message):
    (tmp_path / "m.jsonl").write_text('{"audio": "a.wav"}\n' + line + "\n")
    refused(message, list_recordings, tmp_path / "m.jsonl")


def test_lists_of_paths(tmp_path):
    (tmp_path / "list.txt").write_text("  b.wav \r\n\nsub dir/a\tb.flac\n/abs/c.ogg\n\tc d.wav\n")
    assert ids(tmp_path / "list.txt") == ["b", "sub dir/a\tb", "/abs/c", "c d"]
    (tmp_path / "list.tsv").write_text("b.wav\t3\nsub/a.flac\t5\n")
    assert [r.path for r in list_recordings(tmp_path / "list.tsv")] == [
        tmp_path / "b.wav",
        tmp_path / "sub/a.flac",
    ]
    (tmp_path / "list.txt").write_text("a.wav\n\nb.wav\na.mp3\n")
    refused(r"a\.wav \(line 1\) and .*a\.mp3 \(line 4\)", list_recordings, tmp_path / "list.txt")


@pytest.mark.parametrize("root", ["relative", "absolute"])
def test_the_manifests_of_fairseq(tmp_path, root):
    (tmp_path / "audio").mkdir()
    path, first = tmp_path / "train.tsv", "audio" if root == "relative" else tmp_path / "audio"
    path.write_text(f"{first}\n84/1.flac\t16000\n84/2.flac\t48000\n")
    assert [(r.id, r.path) for r in list_recordings(path)] == [
        (f"84/{i}", tmp_path / f"audio/84/{i}.flac") for i in (1, 2)
    ]
    path.write_text("\n/data/LibriSpeech\n84/1.flac\t16000\n84/2.flac\t48000\n")
    refused(
        r"the root /data/LibriSpeech in line 2 of .*train\.tsv does not exist; correct "
        r"line 2",
        list_recordings,
        path,
    )
    path.write_text("a.flac\nb.flac\t3\n")  # a path, though one that may not exist
    assert ids(path) == ["a", "b"]


@pytest.mark.parametrize("between", [",", ";", "\t"])
def test_a_table_with_a_column_of_audio_is_a_manifest(between, folder, tmp_path):
    folder("a.wav", "b.wav")
    path = tmp_path / "words.csv"
    path.write_text(
        ("audio,text,speaker,id\ndata/a.wav,one,x,\n data/b.wav ,two,y,second\n").replace(
            ",", between
        )
    )
    assert [(r.id, r.path.name, r.line) for r in list_recordings(path)] == [
        ("data/a", "a.wav", 2),
        ("second", "b.wav", 3),
    ]
    path.write_text("path,text\ndata/a.wav,one\n")
    refused(r"words\.csv:2: the record has no `audio`", list_recordings, path)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nowhere", {}, "does not exist"),
        ("empty", {}, "has no recordings"),
        ("empty.txt", {}, "has no recordings"),
        ("text.pdf", {}, "neither a manifest nor audio"),
        ("bytes.txt", {}, "cannot read the manifest"),
        ("empty", {"passages": 3}, "--split"),
        ("empty", {"split": "train"}, "not a split of a prepared corpus"),
    ],
)
def test_what_is_no_source_is_one_sentence(tmp_path, source, options, message):
    (tmp_path / "empty").mkdir()
    for name, content in (("empty.txt", b"\n"), ("text.pdf", b"%"), ("bytes.txt", b"\xff\xfe")):
        (tmp_path / name).write_bytes(content)
    refused(message, list_recordings, tmp_path / source, **options)


@pytest.mark.parametrize(
    ("total", "options", "drawn"),
    [
        (400, {}, 400),
        (3_999, {}, 400),
        (28_539, {}, 2_854),
        (60, {"share": 0.1}, 6),  # what is asked for has no least number
        (61, {"share": 0.1}, 7),
        (5_000, {"count": 9}, 9),
    ],
)
def test_how_many_recordings_are_drawn(total, options, drawn):
    chosen, card = draw(range(total), 3, **options)
    assert (len(set(chosen)), chosen, card) == (
        drawn,
        sorted(chosen),
        {"recordings": drawn, "drawn_from": total},
    )
    assert draw(range(total), 3, **options)[0] == chosen
    if drawn < total:
        # from all over the list
        assert draw(range(total), 4, **options)[0] != chosen and max(chosen) > drawn


# ---- quotation marks in tables: those that quote a cell, and those that are text

LIST = [
    ["audio", "text", "speaker"],
    ["a.wav", "one", "s1"],
    ["b.wav", "two", "s2"],
    ["c.wav", "three", "s1"],
]
MARKED = {"middle": 'a 5" pipe', "pair": 'he said "hello" to her', "end": 'a pipe of 5"'}


def joined(rows: list[list[str]], delimiter: str, texts: dict[int, str]) -> str:
    rows = [[row[0], texts.get(i, row[1]), row[2]] for i, row in enumerate(rows)]
    return "".join(delimiter.join(row) + "\n" for row in rows)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("name", [*MARKED, "quoted", "lines", "doubled"])
def test_quotation_marks_that_can_be_read(delimiter: str, name: str, tmp_path: Path) -> None:
    """In the middle of a cell they are text; cells that are quoted as in CSV may hold line breaks
    and delimiters."""
    quoted = {
        "quoted": f"one{delimiter} two",
        "doubled": 'a "b"',
        "lines": ("Dear Ann,\nit is one, two or 1,000,000 miles.\n\nI"),
    }
    text = MARKED.get(name) or quoted[name]
    cell = text if name in MARKED else '"' + text.replace('"', '""') + '"'
    (tmp_path / "list.csv").write_text("\ufeff" + joined(LIST, delimiter, {1: cell}))
    rows = read_csv(tmp_path / "list.csv", delimiter)
    assert [row["text"] for row in rows] == [text, "two", "three"] and list(rows[0]) == LIST[0]


@pytest.mark.parametrize("texts", [{1: '"one', 2: '"two'}, {2: '"two'}, {1: '"one" and more'}])
def test_a_quotation_mark_that_is_not_closed_is_refused(texts: Any, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(joined(LIST, ",", texts))
    refused("list.csv, line .* is no whole CSV", read_csv, tmp_path / "list.csv")


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("texts", [{1: '"one', 2: 'two"'}, {1: '"one, and more', 3: 'three"'}])
def test_a_quotation_mark_that_would_swallow_rows_is_refused(
    texts: dict[int, str], delimiter: str, tmp_path: Path
) -> None:
    (tmp_path / "list.csv").write_text(joined(LIST, delimiter, texts))
    refused("list.csv, row 1 has", read_csv, tmp_path / "list.csv", delimiter)


@pytest.mark.parametrize(
    "texts", [{1: '"one', 2: 'two"'}, {1: '"one'}, {1: ('"one" and more')}, {2: '5"', 3: '"'}]
)
def test_between_tabs_a_quotation_mark_is_text(texts: dict[int, str], tmp_path: Path) -> None:
    (tmp_path / "list.tsv").write_text(joined(LIST, "\t", texts))
    assert [row["text"] for row in read_csv(tmp_path / "list.tsv", "\t")] == [
        texts.get(i, LIST[i][1]) for i in (1, 2, 3)
    ]


def test_a_column_that_comes_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("audio,text, text \na.wav,one,two\n")
    refused("a.csv has two columns called text; rename or remove one", read_csv, tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text(",audio,\n0,a.wav,\n")  # pandas writes its index without a name
    assert [row["audio"] for row in read_csv(tmp_path / "b.csv")] == ["a.wav"]
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    refused(
        "a.parquet has two columns called text",
        lambda path: list(read_parquet(path)),
        tmp_path / "a.parquet",
    )

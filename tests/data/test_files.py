"""File names of ids, recordings that are joined without drift, sources of recordings, and CSV."""

import shutil
import tarfile
from fractions import Fraction
from math import ceil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import example, given
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE, read_audio, read_native, resample, write_clip
from speechssl.data.files import list_audio_files, make_safe_name, read_csv, unpack
from speechssl.data.prepare import join, write_joined
from speechssl.data.recordings import describe_split, list_recordings, sample_recordings
from speechssl.data.records import hash_data

from ..files import refused, untouched
from ..test_audio import noise


def test_every_id_has_a_different_file_name_and_plain_ids_are_unchanged():
    assert make_safe_name("tpo_1-lecture_2") == "tpo_1-lecture_2"
    names = ["a/b", "a_b", "A_b", "../a", ".", "", "x" * 300, "問題", "問題二", "a b", "\ud800"]
    files = [make_safe_name(n) for n in names]
    assert len(set(map(str.lower, files))) == len(names)
    for file in files:
        assert "/" not in file
        assert 0 < len(file) < 120
        assert file != "."


def test_an_archive_that_begins_with_its_folder_is_unpacked(tmp_path):
    content, source, out = tmp_path / "content", tmp_path / "source", tmp_path / "out"
    for folder in (content / "audio", source / "audio"):  # one of this name lies beside it
        folder.mkdir(parents=True)
    (content / "audio/a.wav").touch()
    with tarfile.open(source / "a.tgz", "w:gz") as tape:
        tape.add(content, ".")
    assert unpack(source, out, [source / "a.tgz"]) == [source, out / "unpacked"]
    assert (out / "unpacked/a.tgz/audio/a.wav").is_file()


@pytest.mark.parametrize("suffix", ["tgz", "zip"])
def test_an_archive_is_unpacked_where_its_readme_alone_lies_beside_it(tmp_path, suffix):
    content, source, out = tmp_path / "content", tmp_path / "source", tmp_path / "out"
    for folder in (content, source):
        folder.mkdir()
        (folder / "README.md").touch()
    for name in ("y.wav", "z.wav"):
        (content / name).touch()
    format = {"tgz": "gztar", "zip": "zip"}[suffix]
    Path(shutil.make_archive(source / "a", format, content)).rename(source / f"a.{suffix}")
    assert unpack(source, out, [source / f"a.{suffix}"]) == [source, out / "unpacked"]
    assert (out / f"unpacked/a.{suffix}/z.wav").is_file()
    for name in ("y.wav", "z.wav"):  # unpacked by hand, and the README deleted
        (source / name).touch()
    (source / "README.md").unlink()
    assert unpack(source, tmp_path / "none", [source / f"a.{suffix}"]) == [source]


def test_recordings_in_hidden_folders_are_not_listed(tmp_path):
    for name in ("a.wav", ".b.wav", ".checkpoints/c.wav", "d.wav/e.flac"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert list_audio_files(tmp_path) == [tmp_path / "a.wav", tmp_path / "d.wav/e.flac"]


# ---- recordings that are joined from pieces

RATES = (8_000, 16_000, 22_050, 24_000, 44_100)


@given(st.sampled_from(RATES), st.lists(st.integers(1, 3_000), min_size=1, max_size=27))
def test_pieces_of_one_rate_are_the_whole_resampled_once(rate, lengths):
    pieces = [noise(n, seed) for seed, n in enumerate(lengths)]
    samples, joined = join([(piece, rate) for piece in pieces])
    assert np.array_equal(samples, resample(np.concatenate(pieces), rate, SAMPLE_RATE))
    assert joined.samples == len(samples) == ceil(sum(lengths) * SAMPLE_RATE / rate)
    assert joined.starts == tuple(Fraction(sum(lengths[:k]), rate) for k in range(len(lengths) + 1))
    for k, length in enumerate(lengths):
        assert joined.measure_piece(k) == length / rate
        assert joined.move_to_whole(k, 0.25) == float(joined.starts[k] + Fraction(1, 4))


@given(
    st.lists(st.tuples(st.integers(200, 3_000), st.sampled_from(RATES)), min_size=1, max_size=27)
)
# at 16 kHz the pieces have 218.4 and 111.4 samples: rounded one by one they would lose 10 in all
@example([(301, 22_050), (307, 44_100)] * 13)
def test_pieces_of_several_rates_do_not_drift(parts):
    """Every piece has a click in its middle. In the joined recording it lies within two samples of
    where the exact start of the piece puts it."""
    pieces = []
    for n, rate in parts:
        piece = np.zeros(n, np.float32)
        piece[n // 2] = 0.5
        pieces.append((piece, rate))
    samples, joined = join(pieces)
    seconds = sum(Fraction(n, rate) for n, rate in parts)
    assert len(samples) == joined.samples == ceil(seconds * SAMPLE_RATE)
    for k, (n, rate) in enumerate(parts):
        low, high = (round(joined.move_to_whole(k, t) * SAMPLE_RATE) for t in (0.0, n / rate))
        peak = low + int(np.abs(samples[low:high]).argmax())
        assert abs(peak - joined.move_to_whole(k, n // 2 / rate) * SAMPLE_RATE) <= 2


def test_a_joined_passage_is_written_once(tmp_path):
    sentences = [tmp_path / f"s{k}.wav" for k in range(3)]
    for k, path in enumerate(sentences):
        write_clip(path, noise(5_000 + 333 * k, k), 0.0, 1.0, 22_050)
    out = tmp_path / "out" / "passage.flac"
    joined = write_joined(sentences, out)
    assert joined.lengths == (5_000, 5_333, 5_666)
    assert soundfile.info(out).samplerate == SAMPLE_RATE
    assert len(read_audio(out)) == joined.samples
    with untouched(out.parent):
        assert write_joined(sentences, out) == joined
    out.with_suffix(".json").unlink()  # as after a kill: it is joined again
    assert write_joined(sentences, out) == joined
    # other recordings are joined again as well
    assert write_joined(sentences[:2], out).lengths == joined.lengths[:2]


def test_the_length_of_an_mp3_is_that_of_its_decoded_samples(shared, tmp_path):
    """The MP3s of NMSQA have no count of their frames. The header of this one estimates 10.543 s,
    decoding gives 10.536 s: over 27 sentences the error would be 0.19 s."""
    path = shared("nmsqa", "context-34_4_4.mp3")
    samples, rate = read_native(path)
    assert (len(samples), rate) == (252_864, 24_000)
    joined = write_joined([path] * 27, tmp_path / "p.flac")
    assert joined.starts[26] == Fraction(26 * 252_864, 24_000)
    assert joined.samples == pytest.approx(27 * 10.536 * SAMPLE_RATE, abs=1)
    start, end = (round(joined.move_to_whole(26, t) * SAMPLE_RATE) for t in (7.44, 8.14))
    original = resample(samples, rate, SAMPLE_RATE)[round(7.44 * SAMPLE_RATE) :][: end - start]
    assert np.corrcoef(read_audio(tmp_path / "p.flac")[start:end], original)[0, 1] > 0.999


# ---- sources of recordings: corpora, manifests, folders and files


def ids(*arguments, **options):
    """List the ids of a source's recordings."""
    return [r.id for r in list_recordings(*arguments, **options)]


def test_a_split_gives_passages_then_their_questions(mini_corpus):
    root = mini_corpus()
    assert ids(root, "train") == ["p0", "p1", "p2", "q0", "q1", "q2"]
    assert ids(root, "train", passages=2) == ["p0", "p1", "q0", "q1"]
    first = list_recordings(root, "train")[0]
    assert (first.path, first.seconds) == (root / "train/audio/p0.flac", 1.0)
    card = {"corpus": hash_data(root, "train"), "split": "train", "passages": 2}
    assert describe_split(root, "train", 2) == card
    refused("--split train", list_recordings, root)
    refused("no passages.jsonl.*train", list_recordings, root, "dev")


def test_a_folder_is_read_however_deep_in_the_order_of_ids(tmp_path):
    names = "b/2.WAV b/10.mp3 a.flac z.ogg b/notes.txt .git/x.wav b/._2.WAV c.opus e.m4a h.sph"
    for name in names.split():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    recordings = list_recordings(tmp_path)
    assert [r.id for r in recordings] == ["a", "b/10", "b/2", "c", "e", "h", "z"]
    assert (recordings[2].path, recordings[2].seconds) == (tmp_path / "b/2.WAV", None)
    assert ids(tmp_path / "b/10.mp3") == ["10"]  # a file is a source too


def test_a_jsonl_manifest_keeps_its_order(tmp_path):
    lines = ['{"audio": "x/b.wav", "id": "second"}', '{"audio": "/abs/a.flac", "seconds": 2}']
    (tmp_path / "m.jsonl").write_text("\n".join([*lines, '{"audio": "c.v1.wav", "id": 7}', "\n"]))
    recordings = [(r.id, str(r.path), r.seconds) for r in list_recordings(tmp_path / "m.jsonl")]
    assert recordings == [
        ("second", str(tmp_path / "x/b.wav"), None),
        ("/abs/a", "/abs/a.flac", 2.0),
        ("7", str(tmp_path / "c.v1.wav"), None),
    ]
    (tmp_path / "list.txt").write_text("  b.wav \r\n\nsub dir/a\tb.flac\n/abs/c.ogg\n\tc d.wav\n")
    assert ids(tmp_path / "list.txt") == ["b", "sub dir/a\tb", "/abs/c", "c d"]


@pytest.mark.parametrize("root", ["relative", "absolute"])
@pytest.mark.parametrize("lines", ["84/1.flac\t16000\n84/2.flac\t48000", "84/1.flac\n84/2.flac"])
def test_a_manifest_of_fairseq_begins_with_its_root(tmp_path, root, lines):
    (tmp_path / "audio").mkdir()
    path = tmp_path / ("train.tsv" if "\t" in lines else "train.txt")
    path.write_text(f"{'audio' if root == 'relative' else tmp_path / 'audio'}\n{lines}\n")
    recordings = [(r.id, r.path) for r in list_recordings(path)]
    assert recordings == [(f"84/{i}", tmp_path / f"audio/84/{i}.flac") for i in (1, 2)]


@pytest.mark.parametrize("between", [",", ";", "\t"])
def test_a_table_with_a_column_of_audio_is_a_manifest(between, tmp_path):
    path = tmp_path / "words.csv"
    for name in "ab":
        (tmp_path / f"{name}.wav").write_bytes(b"")
    rows = "audio,text,speaker,id\na.wav,one,x,\n b.wav ,two,y,second\n"
    path.write_text(rows.replace(",", between))
    recordings = [(r.id, r.path.name) for r in list_recordings(path)]
    assert recordings == [("a", "a.wav"), ("second", "b.wav")]


@pytest.mark.parametrize(
    ("total", "options", "count"),
    [
        (400, {}, 400),
        (3_999, {}, 400),
        (28_539, {}, 2_854),
        (61, {"share": 0.1}, 7),  # a share that is given has no least number
        (5_000, {"count": 9}, 9),
    ],
)
def test_how_many_recordings_are_sampled(total, options, count):
    sample, card = sample_recordings(range(total), seed=3, **options)
    assert card == {"recordings": count, "drawn_from": total}
    assert len(set(sample)) == count
    assert sample == sorted(sample)
    assert sample_recordings(range(total), seed=3, **options)[0] == sample
    if count < total:
        assert max(sample) > count  # not the first ones of the list
        assert sample_recordings(range(total), seed=4, **options)[0] != sample


# ---- quotation marks in tables: some quote a cell, and others are text


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ('a 5" pipe', 'a 5" pipe'),
        ('he said "hello" to her', 'he said "hello" to her'),
        ('"a, b;\tc"', "a, b;\tc"),
        ('"a ""b"""', 'a "b"'),
        ('"Dear Ann,\nit is one.\n\nI"', "Dear Ann,\nit is one.\n\nI"),
    ],
)
def test_quotation_marks_that_can_be_read(delimiter, cell, text, tmp_path):
    """Quotation marks in the middle of a cell are text. Cells that are quoted as in CSV may hold
    line breaks and delimiters."""
    lines = [["audio", "text"], ["a.wav", cell], ["b.wav", "two"]]
    (tmp_path / "list.csv").write_text("\ufeff" + "\n".join(map(delimiter.join, lines)))
    assert [row["text"] for row in read_csv(tmp_path / "list.csv", delimiter)] == [text, "two"]


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("cells", [('"one', 'two"', "three"), ('"one, and more', "two", 'three"')])
def test_a_quotation_mark_that_would_swallow_rows_is_refused(delimiter, cells, tmp_path):
    lines = ["audio text speaker".split(), *(["a.wav", cell, "s"] for cell in cells)]
    (tmp_path / "list.csv").write_text("".join(delimiter.join(line) + "\n" for line in lines))
    refused("list.csv, row 1 has", read_csv, tmp_path / "list.csv", delimiter)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.jsonl", '{"audio": "a.wav"}\n{', "m.jsonl:2 is not a JSON object"),
        ("m.jsonl", '{"audio": "a.wav"}\n{"path": "a.wav"}', "m.jsonl:2: .* no `audio`"),
        ("m.jsonl", '{"audio": "a.wav", "seconds": "?"}', "m.jsonl:1: `seconds`"),
        (
            "m.jsonl",
            '{"audio": "a.wav"}\n{"audio": "a.flac"}',
            r"gives the id a to \S*a.wav and \S*a.flac",
        ),
        ("list.txt", "a.wav\n\nb.wav\na.mp3\n", r"a\.wav and .*a\.mp3; make ids unique"),
        ("words.csv", "path,text\ndata/a.wav,one\n", r"words\.csv:2: the record has no `audio`"),
        ("train.tsv", "/data/LibriSpeech\n84/1.flac\t160\n84/2.flac\t480\n", "train.tsv"),
        ("empty.txt", "\n", "has no recordings"),
        ("text.pdf", "%", "neither a manifest nor audio"),
        ("bytes.txt", b"\xff\xfe", "cannot read the manifest"),
        ("quoted.csv", 'audio\n"a.wav\nb.wav"\nc.wav\n', "has a line break in it"),
        ("nowhere", None, "does not exist"),
    ],
)
def test_a_wrong_source_is_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(message, list_recordings, tmp_path / name)


@pytest.mark.parametrize("cell", ['"one', '"one" and more'])
def test_an_unclosed_quotation_mark_is_text_in_a_tsv_and_refused_in_a_csv(cell, tmp_path):
    (tmp_path / "list.csv").write_text(f"audio,text\na.wav,{cell}\nb.wav,two\n")
    refused("list.csv, line .* is no whole CSV", read_csv, tmp_path / "list.csv")
    (tmp_path / "list.tsv").write_text(f"audio\ttext\na.wav\t{cell}\nb.wav\ttwo\n")
    rows = read_csv(tmp_path / "list.tsv", "\t")
    assert [row["text"] for row in rows] == [cell, "two"]

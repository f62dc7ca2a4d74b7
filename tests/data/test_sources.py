"""Sources of recordings: corpora, manifests, folders and files; every id once, and one sentence where nothing is found."""

import json
import os

import numpy as np
import pytest
import soundfile

from speechssl.audio import read_audio
from speechssl.data.files import list_recordings, source_card
from speechssl.data.records import data_hash
from speechssl.errors import InputError


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
    assert source_card(root, "train", 2) == {"corpus": data_hash(root, "train"), "split": "train", "passages": 2}
    assert source_card(root, None, None) == {}
    with pytest.raises(InputError, match="--split train"):
        list_recordings(root)
    with pytest.raises(InputError, match="no passages.jsonl.*train"):
        list_recordings(root, "dev")
    path = root / "train/questions.jsonl"
    path.write_text(path.read_text().replace('"q1"', '"p1"'))
    with pytest.raises(InputError, match="the id p1 to .*make ids unique"):
        list_recordings(root, "train")


# ---- folders


def test_a_folder_is_read_however_deep_in_the_order_of_ids(folder, capsys):
    root = folder("b/2.WAV", "b/10.mp3", "a.flac", "z.ogg", "b/notes.txt", ".hidden.wav", ".git/x.wav", "b/._2.WAV")
    found = list_recordings(root)
    assert [r.id for r in found] == ["a", "b/10", "b/2", "z"]
    assert found[2].path == root / "b/2.WAV" and found[2].seconds is None
    assert ids(root / "b/10.mp3") == ["10"]  # one file is a source too
    folder("c.opus", "d.aif", "e.aiff", "f.au", "e.m4a", "f/g.M4A", "h.sph", ".j.m4a")
    assert ids(root) == ["a", "b/10", "b/2", "c", "d", "e", "f", "z"]
    assert "passed over 2 .m4a, 1 .sph; convert" in capsys.readouterr().err


def test_files_that_would_share_an_id_keep_their_suffix(folder):
    assert ids(folder("a.wav", "a.flac", "b.wav")) == ["a.flac", "a.wav", "b"]
    with pytest.raises(InputError, match="make ids unique"):
        list_recordings(folder("a.wav.mp3"))


def test_odd_things_named_like_audio_are_listed_and_pipes_are_not(folder, tmp_path):
    root = folder("good.wav", "dir.wav/inner.flac")
    (root / "gone.wav").symlink_to(tmp_path / "nowhere")
    os.mkfifo(root / "pipe.wav")
    assert ids(root) == ["dir", "dir.wav/inner", "gone", "good"]
    with open(os.fsencode(root) + b"/caf\xe9.wav", "wb"):  # a name that is not text becomes one
        pass
    (found,) = (r for r in list_recordings(root) if r.id.startswith("caf"))
    assert found.id == "caf\\udce9" and found.path.is_file() and found.id.encode("utf-8")


def test_links_are_followed_once_in_the_order_of_their_names(folder, tmp_path, monkeypatch):
    root = folder("m/1.wav")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/b.wav").touch()
    for name, target in (("a", root / "m"), ("z", root / "m"), ("link", tmp_path / "elsewhere"), ("circle", root)):
        (root / name).symlink_to(target)
    walk = os.walk

    def shuffled(top, **options):
        for where, folders, files in walk(top, **options):
            folders.sort(reverse=True)
            yield where, folders, files

    assert ids(root) == ["a/1", "link/b"]
    monkeypatch.setattr(os, "walk", shuffled)
    assert ids(root) == ["a/1", "link/b"]


@pytest.mark.parametrize(
    ("suffix", "container", "subtype"),
    [(".opus", "OGG", "OPUS"), (".aif", "AIFF", "PCM_16"), (".aiff", "AIFF", "FLOAT"), (".au", "AU", "PCM_16")],
)
def test_every_suffix_is_read_whole_or_refused(tmp_path, suffix, container, subtype):
    path, samples = tmp_path / f"a{suffix}", np.random.default_rng(0).uniform(-0.3, 0.3, 48_000)
    soundfile.write(path, samples, 48_000, subtype, format=container)
    assert len(read_audio(path)) == 16_000
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="cut off|as audio"):
        read_audio(path)


# ---- manifests


def test_a_jsonl_manifest_keeps_its_order(tmp_path):
    lines = [
        {"audio": "x/b.wav", "id": "second"},
        {"audio": "/abs/a.flac", "seconds": 2},
        {"audio": "c.v1.wav", "seconds": "?", "id": 7},
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
        ('{"path": "a.wav"}', "m.jsonl:2 has no `audio`"),
        ('{"audio": 3}', "m.jsonl:2 has no `audio`"),
        ('{"audio": "b.wav", "id": true}', "m.jsonl:2 has the id True"),
        ('{"audio": "a.wav", "id": null}', "m.jsonl:2 has the id None"),
        ('{"audio": "a.flac"}', r"the id a to \S*a.wav \(line 1\) and \S*a.flac \(line 2\); make ids unique"),
    ],
)
def test_bad_lines_of_a_manifest_are_named(tmp_path, line, message):
    (tmp_path / "m.jsonl").write_text('{"audio": "a.wav"}\n' + line + "\n")
    with pytest.raises(InputError, match=message):
        list_recordings(tmp_path / "m.jsonl")


def test_lists_of_paths(tmp_path):
    (tmp_path / "list.txt").write_text("  b.wav \r\n\nsub dir/a\tb.flac\n/abs/c.ogg\n\tc d.wav\n")
    assert ids(tmp_path / "list.txt") == ["b", "sub dir/a\tb", "/abs/c", "c d"]
    (tmp_path / "list.tsv").write_text("b.wav\t3\nsub/a.flac\t5\n")
    assert [r.path for r in list_recordings(tmp_path / "list.tsv")] == [tmp_path / "b.wav", tmp_path / "sub/a.flac"]
    (tmp_path / "list.txt").write_text("a.wav\n\nb.wav\na.mp3\n")
    with pytest.raises(InputError, match=r"a\.wav \(line 1\) and .*a\.mp3 \(line 4\)"):
        list_recordings(tmp_path / "list.txt")


@pytest.mark.parametrize("root", ["relative", "absolute"])
def test_the_manifests_of_fairseq(tmp_path, root):
    (tmp_path / "audio").mkdir()
    path, first = tmp_path / "train.tsv", "audio" if root == "relative" else tmp_path / "audio"
    path.write_text(f"{first}\n84/1.flac\t16000\n84/2.flac\t48000\n")
    assert [(r.id, r.path) for r in list_recordings(path)] == [(f"84/{i}", tmp_path / f"audio/84/{i}.flac") for i in (1, 2)]
    path.write_text("\n/data/LibriSpeech\n84/1.flac\t16000\n84/2.flac\t48000\n")
    with pytest.raises(InputError, match=r"the root /data/LibriSpeech in line 2 of .*train\.tsv does not exist; correct line 2"):
        list_recordings(path)
    path.write_text("a.flac\nb.flac\t3\n")  # a path, though one that may not exist
    assert ids(path) == ["a", "b"]


def test_a_byte_order_mark_is_no_part_of_a_manifest(folder, tmp_path):
    folder("a.wav")
    for name, content in (("m.jsonl", '{"audio": "data/a.wav"}'), ("m.txt", "data/a.wav"), ("m.tsv", "data\na.wav\t1")):
        (tmp_path / name).write_text(content + "\n", encoding="utf-8-sig")
        assert [r.path for r in list_recordings(tmp_path / name)] == [tmp_path / "data/a.wav"]


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nowhere", {}, "does not exist"),
        ("empty", {}, "has no recordings"),
        ("empty.txt", {}, "has no recordings"),
        ("text.pdf", {}, "neither a manifest's nor an audio"),
        ("bytes.txt", {}, "cannot read the manifest"),
        ("empty", {"passages": 3}, "--split"),
        ("empty", {"split": "train"}, "not a split of a prepared corpus"),
    ],
)
def test_what_is_no_source_is_one_sentence(tmp_path, source, options, message):
    (tmp_path / "empty").mkdir()
    for name, content in (("empty.txt", b"\n"), ("text.pdf", b"%"), ("bytes.txt", b"\xff\xfe")):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        list_recordings(tmp_path / source, **options)

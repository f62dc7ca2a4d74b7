"""Targets of pre-training: read at the right time of the right reading, packed to the sample."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.audio import read_audio, write_flac
from speechssl.errors import InputError
from speechssl.pretrain import targets
from speechssl.pretrain.data import Cropper, MaskOptions
from speechssl.pretrain.targets import Reading, fit_targets, load_labelled, material, pack_audio, write_targets
from speechssl.timing import FrameGrid
from speechssl.units.features import Features
from speechssl.units.fit import draw
from speechssl.units.kmeans import Codebook

GRID = FrameGrid(16_000, 320, 400)
BOOK = Codebook(np.linspace(-0.05, 0.05, 8, dtype=np.float32)[:, None], {"encoder": "toy"})


def features(samples):
    """(T, 1) mean of the samples a frame owns."""
    frames = GRID.frames(len(samples))
    owned = samples[GRID.offset : GRID.offset + frames * GRID.hop].reshape(frames, GRID.hop)
    return torch.from_numpy(owned.mean(1, keepdims=True))


def of(function):
    """Features of a function (N,) -> (T, D)."""
    return Features("toy", GRID, lambda samples: iter([function(samples)]))


def teacher(anchors=None):
    return Reading("p", Path("p.flac"), Path("p.flac"), None if anchors is None else np.array(anchors))


def teachers(root):
    return material(root).readings


def pack(root, out, workers=2):
    pack_audio(teachers(root), out, {"corpus": material(root).hash}, workers)


def write(root, out, function=features, book=BOOK, workers=2):
    """Labels of everything that was packed beside them."""
    packed = np.diff(np.load(out.parent / out.name.replace("targets", "packed") / "bounds.npy")).tolist()
    write_targets(teachers(root), out, GRID, function, book, packed, {"corpus": material(root).hash}, workers)


# ---- anchors


def test_without_anchors_a_frame_is_its_own_teacher():
    assert teacher().frames(GRID, 5, 5).tolist() == [0, 1, 2, 3, 4]
    assert teacher().frames(GRID, 5, 4).tolist() == [0, 1, 2, 3, 3]
    assert teacher([[0, 0], [1.5, 1.5], [4, 4]]).frames(GRID, 199, 199).tolist() == list(range(199))  # equal readings


@given(st.floats(0.5, 2.0), st.integers(2, 150))
def test_a_reading_that_is_slower_throughout(rate, count):
    found = teacher([[0, 0], [10, 10 * rate]]).frames(GRID, count, 1_000)
    middles = (np.arange(count) * 320 + 200) / 16_000
    expected = (middles * rate * 16_000 - 200) / 320
    assert np.abs(found - expected).max() <= 0.5 + 1e-6 or found[0] == 0


@given(st.lists(st.tuples(st.floats(0.05, 0.5), st.floats(0.05, 0.5)), min_size=1, max_size=10), st.integers(1, 200))
def test_a_frame_is_read_in_the_same_phone(durations, count):
    """Phones with other lengths in either reading: a frame's middle and its teacher's middle lie in the same phone."""
    anchors = np.vstack([[0, 0], np.cumsum(durations, 0)])
    there = GRID.frames(int(anchors[-1, 1] * 16_000))
    if there == 0:
        return
    found = teacher(anchors).frames(GRID, count, there)
    assert (np.diff(found) >= 0).all() and found.min() >= 0 and found.max() < there
    half = 0.011  # seconds: the teacher's middle is at most half a frame from the point meant
    for own, other in enumerate(found):
        here = (own * 320 + 200) / 16_000
        if not (0 < other < there - 1 and here < anchors[-1, 0]):
            continue
        phone = int(np.searchsorted(anchors[:, 0], here, side="right")) - 1
        assert anchors[phone, 1] - half <= (other * 320 + 200) / 16_000 <= anchors[phone + 1, 1] + half


# ---- teachers of a corpus


def with_reference(root):
    """A second reading of p1, a quarter slower, and what it says."""
    write_flac(root / "train/reference/p1.flac", np.random.default_rng(5).uniform(-0.5, 0.5, 30_154))
    row = {"id": "p1", "audio": "train/reference/p1.flac", "anchors": [[0.0, 0.0], [24_123 / 16_000, 30_154 / 16_000]]}
    (root / "train/reference.jsonl").write_text(json.dumps(row) + "\n")


def test_a_passage_is_taught_by_its_reference_where_it_has_one(mini_corpus):
    root = mini_corpus()
    assert all(t.anchors is None for t in teachers(root))
    with_reference(root)
    found = teachers(root)
    assert [t.id for t in found] == ["p0", "p1", "p2"]
    assert [t.audio.relative_to(root).as_posix() for t in found] == [
        "train/audio/p0.flac", "train/reference/p1.flac", "train/audio/p2.flac",
    ]  # fmt: skip
    assert found[1].anchors.shape == (2, 2) and found[0].anchors is found[2].anchors is None


def test_clusters_are_fitted_on_a_random_choice(mini_corpus):
    root, drawn = mini_corpus(tuple(range(8_000, 12_000, 400))), {}

    def watched(samples):
        seen.append(len(samples))
        return features(samples)

    for seed in range(4):
        seen = drawn.setdefault(seed, [])
        book = fit_targets(teachers(root), of(watched), 6, seed, share=0.3)
        assert len(seen) == book.card["recordings"] == 3 and book.card["drawn_from"] == 10 and book.size == 6
        assert (book.card["encoder"], book.card["seed"], book.card["budget"], book.card["starts"]) == ("toy", seed, 300_000, 20)
        assert book.card["reference_reading"] is False
    assert len({tuple(sorted(seen)) for seen in drawn.values()}) > 1
    again = fit_targets(teachers(root), of(features), 6, 0, 0.3, budget=20, starts=2)
    assert (again.card["frames"], again.card["budget"], again.card["starts"]) == (sum(map(GRID.frames, drawn[0])), 20, 2)


def test_speakers_that_come_late_in_the_list_are_drawn_too(tmp_path):
    """20 speakers x 100 files, as LibriSpeech lists them: the first 400 files would be of four speakers."""
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 800)
    write_flac(tmp_path / "one.flac", noise)
    for speaker in range(20):
        (tmp_path / f"voices/{speaker:02}").mkdir(parents=True)
        for number in range(100):
            (tmp_path / f"voices/{speaker:02}/{number:02}.flac").hardlink_to(tmp_path / "one.flac")
    chosen, card = draw(material(tmp_path / "voices").readings, seed=0)
    assert card == {"recordings": 400, "drawn_from": 2_000}
    assert {reading.id.split("/")[0] for reading in chosen} == {f"{speaker:02}" for speaker in range(20)}
    assert [reading.id for reading in chosen] == sorted({reading.id for reading in chosen})


# ---- files


def test_labels_fit_the_packed_audio_to_the_frame(mini_corpus, tmp_path):
    root = mini_corpus()
    with_reference(root)
    pack(root, tmp_path / "packed")
    write(root, tmp_path / "targets")
    data = load_labelled(tmp_path / "packed", tmp_path / "targets")
    assert np.diff(data.sample_bounds).tolist() == [16_000, 24_123, 9_999]
    assert np.diff(data.label_bounds).tolist() == [GRID.frames(n) for n in (16_000, 24_123, 9_999)]
    assert data.samples.dtype == data.labels.dtype == np.int16 and len(data) == 3
    for i in (0, 2):
        audio = read_audio(root / f"train/audio/p{i}.flac")
        cut = data.samples[data.sample_bounds[i] : data.sample_bounds[i + 1]]
        assert np.array_equal(cut, audio * 32768)  # the 16 bits of the file
        labels = data.labels[data.label_bounds[i] : data.label_bounds[i + 1]]
        assert np.array_equal(labels, BOOK.assign(features(audio)))
    slow = BOOK.assign(features(read_audio(root / "train/reference/p1.flac")))
    mapped = teachers(root)[1].frames(GRID, GRID.frames(24_123), len(slow))
    assert np.array_equal(data.labels[slice(*data.label_bounds[1:3])], slow[mapped])


def test_crops_of_what_was_written_hold_their_own_labels(mini_corpus, tmp_path):
    """End to end: the label of every frame of every crop can be found again from the crop's samples."""
    root = mini_corpus((16_000, 32_000))
    pack(root, tmp_path / "packed")
    write(root, tmp_path / "targets")
    data = load_labelled(tmp_path / "packed", tmp_path / "targets")
    for step in range(5):
        made = Cropper(data, GRID, MaskOptions(), crops=3, seconds=0.5)(step)
        for samples, labels in zip(made["samples"].numpy(), made["labels"].numpy(), strict=True):
            means = features(samples)[:, 0].numpy()  # normalised, so the order of the means decides
            assert np.corrcoef(means, labels)[0, 1] > 0.9


@pytest.mark.parametrize("workers", [1, 3])
def test_files_do_not_depend_on_the_workers(mini_corpus, tmp_path, workers):
    root = mini_corpus()
    for name, number in (("a", 2), ("b", workers)):
        pack(root, tmp_path / f"{name}-packed", number)
        write(root, tmp_path / f"{name}-targets", workers=number)
    for file in ("packed/samples.s16", "packed/bounds.npy", "targets/labels.npy", "targets/bounds.npy"):
        assert (tmp_path / f"a-{file}").read_bytes() == (tmp_path / f"b-{file}").read_bytes()


def test_finished_work_is_not_done_again_and_a_killed_run_is(mini_corpus, tmp_path, monkeypatch):
    root = mini_corpus()

    def killed(*_):
        raise KeyboardInterrupt

    for run in (pack, write):
        name = tmp_path / ("packed" if run is pack else "targets")
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(targets, "_save", killed)
            run(root, name)
        if run is pack:
            pack(root, name)
    write(root, tmp_path / "targets")
    files = [tmp_path / f for f in ("packed/samples.s16", "packed/bounds.npy", "targets/labels.npy", "targets/bounds.npy")]
    before = {p: p.stat().st_mtime_ns for p in files}
    pack(root, tmp_path / "packed")
    write(root, tmp_path / "targets", killed)
    assert before == {p: p.stat().st_mtime_ns for p in files}
    other = Codebook(BOOK.centroids * 1.1, BOOK.card)
    write(root, tmp_path / "targets", book=other)
    assert json.loads((tmp_path / "targets/card.json").read_text())["codebook"] == other.hash


@pytest.mark.parametrize("kind", ["damaged", "short", "reference"])
def test_a_recording_without_targets_is_set_aside_and_the_rest_is_done(mini_corpus, tmp_path, capsys, kind):
    """Short: the teacher may see more at a time than the encoder that is trained."""
    root, audio, function = mini_corpus((16_000, 1_000 if kind == "short" else 24_123, 20_000)), kind != "damaged", features
    if kind == "damaged":
        (root / "train/audio/p1.flac").write_bytes(b"no audio")
    elif kind == "reference":
        (root / "bad.flac").write_bytes(b"no audio")
        reading = {"id": "p1", "audio": "bad.flac", "anchors": [[0, 0], [1, 1]]}
        (root / "train/reference.jsonl").write_text(json.dumps(reading) + "\n")
    else:

        def function(samples):
            if len(samples) < 1_200:
                raise ValueError(f"{len(samples)} samples are fewer than the 1200 that one frame needs")
            return features(samples)

    pack(root, tmp_path / "packed")
    assert ("set aside p1" in (err := capsys.readouterr().err)) is not audio and ("1 recording set aside" in err) is not audio
    assert (np.diff(np.load(tmp_path / "packed/bounds.npy"))[1] > 0) == audio
    write(root, tmp_path / "targets", function)
    assert ("set aside p1" in capsys.readouterr().err) is audio
    data = load_labelled(tmp_path / "packed", tmp_path / "targets")
    assert np.diff(data.label_bounds).tolist() == [GRID.frames(16_000), 0, GRID.frames(20_000)]
    crops = Cropper(data, GRID, MaskOptions(0.5, 10, 0.0), crops=20, seconds=0.5)
    assert [set(bucket.recordings) for bucket in crops._buckets] == [{0, 2}]
    assert fit_targets(teachers(root), of(function), 6).size == 6 and "set aside p1" in capsys.readouterr().err


def test_targets_that_cannot_be_are_one_sentence(mini_corpus, tmp_path):
    root, out = mini_corpus(), tmp_path / "targets"
    pack(root, tmp_path / "packed")
    few = Codebook(np.r_[BOOK.centroids[2:6], np.full((4, 1), 9, np.float32)], {})
    many = Codebook(np.linspace(-1, 1, 32_768, dtype=np.float32)[:, None], {})
    for book, message in (
        (few, "use only 4 of 8 clusters; check the features"),
        (many, "32768 clusters are too many; give at most 32767"),
        (
            Codebook(BOOK.centroids, {"frame_rate": 100.0}),
            "100 labels a second and the encoder 50 frames; give a teacher or codebook",
        ),
    ):
        with pytest.raises(InputError, match=message):
            write(root, out, book=book)
        assert not out.exists()
    write(root, out, book=Codebook(BOOK.centroids[2:6], {}))
    with pytest.raises(InputError, match="32768 clusters"):
        fit_targets(teachers(root), of(features), 32_768)
    for path in root.glob("train/audio/p*.flac"):
        path.write_bytes(b"no audio")
    with pytest.raises(InputError, match=r"none of 3 recordings can be used \(.*\); give others"):
        fit_targets(teachers(root), of(features), 6)
    with pytest.raises(InputError, match=r"none of 3 recordings can be read \(.*\); give others"):
        pack(root, tmp_path / "none")


def test_audio_beyond_full_scale_is_clipped_and_not_wrapped_round(tmp_path):
    """Lossy and resampled recordings overshoot."""
    loud = 1.2 * np.sin(np.arange(16_000) * 0.05)
    soundfile.write(tmp_path / "loud.wav", loud, 16_000, "FLOAT")
    pack_audio([Reading("p", tmp_path / "loud.wav", tmp_path / "loud.wav", None)], tmp_path / "packed", {})
    packed = np.fromfile(tmp_path / "packed/samples.s16", np.int16)
    np.testing.assert_allclose(packed / 32768, np.clip(loud, -1, 1), atol=1e-4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{no json", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"id": "p0"}', "not a reference reading"),
        ('{"id": "p0", "audio": "x.flac", "anchors": [[0, 0, 0]]}', "not a reference reading"),
        ('{"id": "p0", "audio": "x.flac", "anchors": [[0, 0], [1, 1]]}', "x.flac, which does not exist"),
    ],
)
def test_a_damaged_reference_is_named(mini_corpus, line, message):
    root = mini_corpus((16_000, 24_123, 20_000))
    (root / "train/reference.jsonl").write_text("\n" + line + "\n")
    with pytest.raises(InputError, match=rf"reference.jsonl:2 .*{message}"):
        teachers(root)


def test_a_folder_of_recordings_is_material_too(tmp_path):
    for name in ("b", "a", "c"):
        write_flac(tmp_path / "voices" / f"{name}.flac", np.random.default_rng(0).uniform(-0.5, 0.5, 16_000))
    found = material(tmp_path / "voices", recordings=2)
    assert len(found.readings) == 2 and all(r.path == r.audio for r in found.readings)
    write_flac(found.readings[0].path, np.zeros(16_000))
    assert material(tmp_path / "voices", recordings=2).hash != found.hash
    with pytest.raises(InputError, match="no recordings to train on in 0 of .*voices; give more"):
        material(tmp_path / "voices", recordings=0)


def test_some_passages_of_a_corpus_are_drawn_by_the_seed_and_are_known_apart(mini_corpus):
    """Not the first ones, which in a list by speaker are a few speakers."""
    root = mini_corpus()
    found = [material(root, recordings=2, seed=seed) for seed in range(10)]
    assert {tuple(r.id for r in f.readings) for f in found} == {("p0", "p1"), ("p0", "p2"), ("p1", "p2")}
    assert material(root, recordings=2, seed=3) == found[3] and found[3].hash == material(root).hash + "-2-3"
    found = found[0]
    assert found.card == {"manifests": "0123"}
    with_reference(root)
    assert [r.anchors is None for r in material(root).readings] == [True, False, True]
    assert all(r.anchors is None and r.path == r.audio for r in material(root, reference=False).readings)
    with pytest.raises(InputError, match="has no passages to train on"):
        material(root, recordings=0)


def test_a_manifest_has_its_reference_readings_beside_it(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("one", "two", "neutral"):
        write_flac(tmp_path / f"{name}.flac", rng.normal(0, 0.1, 16_000))
    listed = tmp_path / "list.txt"
    listed.write_text("one.flac\ntwo.flac\n")
    line = {"id": "one", "audio": "neutral.flac", "anchors": [[0.0, 0.0], [1.0, 0.5]]}
    plain = material(listed)
    (tmp_path / "list.reference.jsonl").write_text(json.dumps(line) + "\n")
    found = material(listed)
    assert [r.audio.name for r in found.readings] == ["neutral.flac", "two.flac"] and found.readings[1].anchors is None
    assert found.readings[0].path.name == "one.flac" and found.hash != plain.hash == material(listed, reference=False).hash
    (tmp_path / "list.reference.jsonl").write_text(json.dumps(line | {"anchors": []}) + "\n")
    with pytest.raises(InputError, match="reference.jsonl:1 is not a reference reading"):
        material(listed)

"""MiniSUPERB: every task is drawn as ever, made to the same bytes however it is made, with nothing of the test in training."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from speechssl.audio import read_audio
from speechssl.data.utterances import DOCUMENTS, SPLITS, SPLITS_OF, load_labelled, load_set, load_trials, speakers_of
from speechssl.errors import InputError
from speechssl.io import hash_json
from speechssl.synth import minisuperb as speech
from speechssl.synth.config import TASKS, MiniSuperb
from speechssl.synth.minisqa import speakers
from speechssl.synth.minisuperb import DRAWN, LEAST, USUAL, Draw, Settings, draw, plan, prepare, render, some_of

pytest.importorskip("espeakng_loader", reason='the synthesiser needs: pip install "speechssl[synth]"')

LABELLED = ("ks", "ic", "sid", "style")
SMALL = Settings({task: (8, 3, 3) for task in USUAL} | {"ks": (12, 3, 12), "sid": (40, 3, 3), "ic": (31, 3, 3)}, seed=5)
DRAWN_AS = {
    "pr": "8c47a34e34f9948b",
    "asr": "a9d7de0be49a4ebc",
    "ks": "0733da49e4702156",
    "qbe": "36edda4882b75488",
    "sid": "3622fcf5814b5a42",
    "asv": "8836f370e0e4758a",
    "sd": "230b702193ebcd76",
    "ic": "6e749710f089de21",
    "sf": "f1b9c66290bc43f9",
    "style": "70e277806b377de6",
    "se": "04d8be306fe3696d",
    "ss": "e40d05fabfa0dd95",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    out = tmp_path_factory.mktemp("minisuperb") / "out"
    prepare(out, SMALL)
    return out


def contents(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


# ---- what is drawn: it is frozen with what was measured on it


def plain(value):
    """As JSON has it, without what a voice did not have then."""
    if isinstance(value, dict):
        return {name: plain(some) for name, some in value.items() if name != "engine"}
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


@pytest.mark.slow
@pytest.mark.parametrize("task", USUAL)
def test_version_1_is_drawn_as_ever(task):
    planned = plan(task, dict(zip(SPLITS_OF.get(task, SPLITS), (120, 20, 20), strict=True)), 7)
    assert hash_json([plain(asdict(d)) for some in planned.values() for d in some]) == DRAWN_AS[task]


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(set(DRAWN) - {"ks", "ic", "sid", "style"}))
def test_a_split_is_decided_by_its_seed_and_grows_without_change(task):
    assert draw(task, "dev", 20, 1)[:5] == draw(task, "dev", 5, 1)
    assert [replace(d, seed=0) for d in draw(task, "dev", 5, 1)] != [replace(d, seed=0) for d in draw(task, "dev", 5, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(set(DRAWN) - {"sid"}))
def test_voices_and_open_sentences_of_the_test_are_not_those_of_training(task):
    parts = {split: [part for d in draw(task, split, 24, 0) for part in spoken(d)] for split in SPLITS}
    for split, found in parts.items():
        assert {d.voice.name for d in found} <= {voice.name for voice in speakers("en", split)}
    if task not in ("ks", "ic", "sf"):  # their words are meant to be the same
        texts = {split: {d.text for d in found} for split, found in parts.items()}
        assert not texts["train"] & texts["test"] and not texts["dev"] & texts["test"] and not texts["train"] & texts["dev"]


def spoken(drawn):
    """The voices that speak in a recording."""
    turns = getattr(drawn, "turns", None) or [getattr(drawn, name, None) for name in ("first", "second", "clean")]
    return [part for part in turns if part] or [drawn]


# ---- what is spoken


@pytest.mark.slow
def test_every_set_is_there_and_can_be_read(corpus):
    for task, sizes in SMALL.sizes.items():
        data = load_labelled(corpus / task) if task in LABELLED else load_set(corpus / task, task)
        assert data.task == task and tuple(len(data.splits[split]) for split in SPLITS_OF.get(task, SPLITS)) == sizes
        for utterances in data.splits.values():
            for u in utterances:
                assert len(read_audio(data.path(u))) / 16_000 == pytest.approx(u.seconds, abs=1e-9)
                assert u.seconds >= 1.0 if task == "ks" else u.seconds >= 0.3
    names = {"card.json", "settings.json", "audio", *(f"{split}.jsonl" for split in SPLITS)}
    assert {p.name for p in (corpus / "ks").iterdir()} == names
    assert {p.name for p in (corpus / "asv").iterdir()} == names | {"dev.trials.jsonl", "test.trials.jsonl"}
    assert {p.name for p in (corpus / "qbe").iterdir()} >= {f"{DOCUMENTS}.jsonl", "dev.jsonl", "test.jsonl"}


def test_loudness_and_brightness_are_as_drawn():
    drawn = next(d for d in draw("ic", "dev", 1, 0))
    assert np.abs(render(drawn)).max() == pytest.approx(10 ** (drawn.gain / 20), rel=1e-4)

    def centre(tilt):
        power = np.abs(np.fft.rfft(render(Draw("x", drawn.text, drawn.voice, tilt=tilt)))) ** 2
        return float((power * np.arange(len(power))).sum() / power.sum())

    assert centre(-0.5) < centre(0.0) < centre(0.5)


@pytest.mark.slow
def test_silence_is_faint_noise_that_can_be_read(corpus):
    data = load_labelled(corpus / "ks")
    silent = next(u for u in data.splits["test"] if u.labels["keyword"] == "silence")
    assert 0.005 < np.abs(read_audio(data.path(silent))).max() < 0.11


@pytest.mark.slow
def test_lines_have_what_their_task_asks_for_and_no_more(corpus):
    spoken = {"id", "audio", "seconds", "speaker", "text"}
    fields = {
        "pr": spoken | {"phones"},
        "asr": spoken,
        "qbe": spoken | {"matches"},
        "asv": spoken,
        "sd": {"id", "audio", "seconds", "speaker", "turns"},
        "sf": spoken | {"slots"},
        "se": {"id", "audio", "seconds", "speaker", "sources"},
        "ss": {"id", "audio", "seconds", "speaker", "sources"},
    }
    for task, names in fields.items():
        for line in (corpus / task / "test.jsonl").read_text().splitlines():
            assert set(json.loads(line)) == names


@pytest.mark.slow
def test_two_voices_of_the_split_are_mixed(corpus):
    voices = {voice.name for voice in speakers("en", "test")}
    for task in ("sd", "ss"):
        for one in load_set(corpus / task).splits["test"]:
            assert len(speakers_of(one)) == 2 and set(speakers_of(one)) <= voices


@pytest.mark.slow
def test_pr_and_asr_have_the_same_recordings(corpus):
    pr, asr = (load_set(corpus / task) for task in ("pr", "asr"))
    for split in SPLITS:
        assert [replace(u, phones="") for u in pr.splits[split]] == list(asr.splits[split])
        assert [pr.path(u).resolve() for u in pr.splits[split]] == [asr.path(u).resolve() for u in asr.splits[split]]
    assert not (corpus / "pr/audio").exists() and len(list((corpus / "sentences/audio").iterdir())) == 14


@pytest.mark.slow
def test_order_kills_and_workers_change_no_byte(corpus, tmp_path, monkeypatch):
    real, made = speech._make, []

    def dying(job):
        if len(made) == 80:
            raise KeyboardInterrupt
        made.append(job)
        real(job)

    settings = Settings({task: SMALL.sizes[task] for task in reversed(SMALL.sizes)}, SMALL.seed)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(speech, "_make", dying)
        prepare(tmp_path, settings)
    assert not (tmp_path / "pr").exists() and (tmp_path / "se/card.json").exists()
    prepare(tmp_path, settings, workers=2)
    assert contents(tmp_path) == contents(corpus)


@pytest.mark.slow
def test_what_was_killed_within_a_recording_is_made_whole(corpus, tmp_path):
    few = Settings({"ss": SMALL.sizes["ss"]}, SMALL.seed)
    drawn = plan("ss", dict(zip(SPLITS, few.sizes["ss"], strict=True)), few.seed)["train"][0]
    prepare(tmp_path, few)
    for path in (tmp_path / "ss/card.json", tmp_path / f"ss/sources/{drawn.id}-2.flac"):
        path.unlink()
    prepare(tmp_path, few)
    assert contents(tmp_path / "ss") == contents(corpus / "ss")


@pytest.mark.slow
def test_a_finished_corpus_is_left_alone_and_its_card_names_all_manifests(corpus, monkeypatch):
    monkeypatch.setattr(speech, "_make", lambda _: pytest.fail("this was spoken before"))
    cards = prepare(corpus, SMALL)
    assert cards["sid"]["seed"] == 5 and set(cards["asv"]["manifests"]) == {*SPLITS, "dev.trials", "test.trials"}
    assert {t.same for t in load_trials(load_set(corpus / "asv"), "dev")} == {True, False}


def test_sentences_of_another_seed_are_refused(tmp_path):
    prepare(tmp_path, Settings({"asr": (1, 1, 1)}, seed=5))
    with pytest.raises(InputError, match="sentences holds the MiniSUPERB corpus made with other settings"):
        prepare(tmp_path, Settings({"pr": (1, 1, 1)}, seed=6))
    assert not (tmp_path / "pr").exists()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"er": (1, 1, 1)}, "cannot make er .*; give pr, asr, .* three numbers from 1 1 1"),
        ({"ks": (1, 0, 1)}, "cannot make ks"),
        ({"ks": (1, 1)}, "cannot make ks"),
        ({"asv": (3, 2, 3)}, "cannot make asv .* three numbers from 3 3 3"),
        ({"qbe": (2, 1, 1)}, "cannot make qbe .* three numbers from 8 1 1"),
    ],
)
def test_what_cannot_be_made_is_one_sentence(tmp_path, sizes, message):
    with pytest.raises(InputError, match=message):
        prepare(tmp_path / "x", Settings(sizes))
    assert not (tmp_path / "x").exists()


def test_a_share_is_never_less_than_will_do():
    assert some_of(["asr", "asv", "qbe"], 0.1) == {"asr": (90, 10, 20), "asv": (80, 16, 16), "qbe": (30, 4, 4)}
    tiny = some_of(list(USUAL), 1e-6)
    assert {task: tiny[task] for task in LEAST} == LEAST and tiny["sd"] == (1, 1, 1)
    with pytest.raises(InputError, match="there is no set er; choose from pr, asr, ks"):
        some_of(["er"], 1.0)


def test_the_command_makes_all_of_them():
    assert tuple(USUAL) == TASKS == MiniSuperb(out=Path()).tasks and set(USUAL) == {*DRAWN, "qbe"} and Settings().sizes == USUAL

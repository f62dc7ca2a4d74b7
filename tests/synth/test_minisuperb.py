"""MiniSUPERB's labelled sets: the same bytes however made, voices that were never heard, labels that only the sound tells."""

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from speechssl.audio import read_audio
from speechssl.data.utterances import SPLITS, load_labelled
from speechssl.errors import InputError
from speechssl.io import hash_json
from speechssl.synth import minisuperb as speech
from speechssl.synth.minisqa import speakers
from speechssl.synth.minisuperb import SPEAKERS, Draw, Settings, draw, prepare, render
from speechssl.synth.minisuperb_words import INTENTS, KEYWORDS, STYLES

pytest.importorskip("espeakng_loader", reason='the synthesiser needs: pip install "speechssl[synth]"')

SMALL = Settings({"ks": (12, 12, 12), "ic": (31, 3, 3), "sid": (40, 3, 3), "style": (4, 4, 4)}, seed=3)
FEW = Settings({"ks": (12, 3, 3)}, seed=3)
DRAWN = {"ks": "7ef1fc7c5833b37b", "ic": "297462fbc680ad42", "sid": "aec98610e7c9a12c", "style": "118369f7b4a2964d"}
FIELDS = ("id", "text", "voice", "labels", "seconds", "tilt", "gain", "seed")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    out = tmp_path_factory.mktemp("minisuperb") / "out"
    prepare(out, SMALL)
    return out


def contents(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


# ---- what is drawn


@pytest.mark.parametrize(("task", "known"), DRAWN.items())
def test_version_1_is_drawn_as_ever(task, known):
    """What was published with these sets was measured on these recordings."""
    drawn = [asdict(d) for split in SPLITS for d in draw(task, split, 50, 7)]
    assert hash_json([[d[name] for name in FIELDS] for d in drawn]) == known


@pytest.mark.parametrize("task", ["ks", "ic", "style"])
def test_voices_of_the_test_are_never_heard_in_training(task):
    names = {split: {d.voice.name for d in draw(task, split, 200, 0)} for split in SPLITS}
    for split in SPLITS:
        assert names[split] <= {voice.name for voice in speakers("en", split)}


def test_classes_are_even():
    assert set(Counter(d.labels["keyword"] for d in draw("ks", "test", 120, 0)).values()) == {10}
    assert len({d.labels["keyword"] for d in draw("ks", "test", 120, 0)}) == len(KEYWORDS) + 2
    assert set(Counter(tuple(d.labels.values()) for d in draw("ic", "train", 310, 0)).values()) == {10}
    assert set(Counter(d.labels["speaker"] for d in draw("sid", "dev", 80, 0)).values()) == {2}


def test_there_are_the_31_intents_of_fluent_speech_commands():
    assert len(INTENTS) == len({(i.action, i.object, i.location) for i in INTENTS}) == 31
    assert len({phrase for i in INTENTS for phrase in i.phrases}) == sum(len(i.phrases) for i in INTENTS)


def test_the_last_phrase_of_an_intent_is_new_in_the_test():
    held = {i.phrases[-1] for i in INTENTS}
    assert not held & {d.text for d in draw("ic", "train", 1000, 0)}
    assert held <= {d.text for d in draw("ic", "test", 1000, 0)}


def test_speakers_are_known_and_sentences_are_new():
    drawn = {split: draw("sid", split, 120, 0) for split in SPLITS}
    assert {d.voice.name for d in drawn["test"]} == {d.voice.name for d in drawn["train"]} and SPEAKERS == 40
    texts = [d.text for split in SPLITS for d in drawn[split]]
    assert len(set(texts)) == len(texts)


def test_neither_words_nor_voices_tell_the_style():
    drawn = draw("style", "train", 80, 0)
    for four in (drawn[i : i + 4] for i in range(0, 80, 4)):
        assert len({(d.text, d.voice.name) for d in four}) == 1 and {d.labels["style"] for d in four} == set(STYLES)
    rates = {name: [d.voice.rate for d in draw("style", "train", 400, 0) if d.labels["style"] == name] for name in STYLES}
    assert np.mean(rates["sad"]) < np.mean(rates["neutral"]) < np.mean(rates["angry"])
    assert max(rates["sad"]) > min(rates["angry"])  # they overlap


# ---- what is spoken


def test_a_corpus_has_what_was_asked_for(corpus):
    for task, sizes in SMALL.sizes.items():
        data = load_labelled(corpus / task)
        assert data.task == task and tuple(len(data.splits[split]) for split in SPLITS) == sizes
        for utterance in data.splits["test"]:
            samples = read_audio(data.path(utterance))
            assert len(samples) / 16_000 == pytest.approx(utterance.seconds)
            assert utterance.seconds >= 1.0 if task == "ks" else 0.5 <= utterance.seconds <= 6
    assert {p.name for p in (corpus / "ks").iterdir()} == {"card.json", "settings.json", "audio", *(f"{s}.jsonl" for s in SPLITS)}


def test_loudness_and_brightness_are_as_drawn():
    drawn = next(d for d in draw("ic", "dev", 1, 0))
    assert np.abs(render(drawn)).max() == pytest.approx(10 ** (drawn.gain / 20), rel=1e-4)

    def centre(tilt):
        power = np.abs(np.fft.rfft(render(Draw("x", drawn.text, drawn.voice, tilt=tilt)))) ** 2
        return float((power * np.arange(len(power))).sum() / power.sum())

    assert centre(-0.5) < centre(0.0) < centre(0.5)


def test_silence_is_faint_noise_that_can_be_read(corpus):
    data = load_labelled(corpus / "ks")
    silent = next(u for u in data.splits["test"] if u.labels["keyword"] == "silence")
    assert 0.005 < np.abs(read_audio(data.path(silent))).max() < 0.11


def test_a_finished_corpus_is_left_alone(corpus, monkeypatch):
    monkeypatch.setattr(speech, "_make", lambda _: pytest.fail("this was spoken before"))
    assert prepare(corpus, SMALL)["sid"]["seed"] == 3


def test_other_settings_are_refused(corpus):
    with pytest.raises(InputError, match="MiniSUPERB corpus made with other settings"):
        prepare(corpus, Settings(SMALL.sizes, seed=4))

"""Features come back from the store as they were, and a killed run goes on with the next
recording."""

import json

import numpy as np
import pytest

from speechssl.audio import write_flac
from speechssl.augment import Distorter, parse_condition
from speechssl.cascade.data import TimedWord, Transcript
from speechssl.eval.encode import (
    Job,
    JsonStore,
    Recording,
    deserialise,
    encode_recordings,
    serialise,
)
from speechssl.speechbert.system import AudioWords
from speechssl.timing import RunLength


@pytest.mark.parametrize("features", ["a boat", {"action": "on"}, 3, 0.5])
def test_features_come_back_as_they_were(features):
    assert deserialise(json.loads(json.dumps(serialise(features)))) == features


def test_transcripts_units_and_codes_come_back(tmp_path):
    words = Transcript((TimedWord("one", 0.1, 0.5, 0.9), TimedWord("two", 0.5, 0.9, 0.8)), "")
    units = RunLength(np.array([3, 1]), np.array([2, 5]))
    codes = AudioWords(np.ones((2, 3), np.float32), np.array([0.0, 0.1]), np.array([0.1, 0.2]))
    store = JsonStore(tmp_path / "a", "x")
    for name, features in (("words", words), ("units", units), ("codes", codes)):
        store.add(name, features)
    read = JsonStore(tmp_path / "a", "x").features
    assert read["words"] == words
    assert read["units"].units.tolist() == [3, 1]
    assert read["units"].lengths.tolist() == [2, 5]
    assert read["codes"].codes.dtype == np.float32
    assert read["codes"].ends.tolist() == [0.1, 0.2]


@pytest.mark.parametrize(
    "kind",
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("speechssl.artifacts", "write_text"),
        ("speechssl.nowhere", "X"),
    ],
)
def test_a_line_that_names_another_class_than_features_is_refused(tmp_path, kind):
    store = JsonStore(tmp_path / "a", "x")
    store.add("a", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("speechssl.eval.encode.serialise", lambda _: [*kind, "true"])
        store.add("b", 2)
    with pytest.raises((ValueError, ImportError, TypeError)):
        JsonStore(store.path, "x")


def test_a_killed_run_goes_on_with_the_next_recording(tmp_path):
    recordings = []
    for n in range(6):
        write_flac(tmp_path / f"r{n}.flac", np.full(4_000, (n + 1) / 10))
        recordings.append(Recording(f"r{n}", tmp_path / f"r{n}.flac", f"r{n}"))
    encoded = []

    def run(stop=""):
        def encode(record, samples):
            if record == stop:
                raise KeyboardInterrupt
            if record == "r1":
                raise ValueError("it is silent")
            encoded.append(record)
            return {"mean": round(float(np.mean(samples)), 1)}

        store = JsonStore(tmp_path / "a", "x")
        job = Job("a", encode, [r.name for r in recordings], needs_audio=True, store=store)
        clean = parse_condition("clean")
        outputs = encode_recordings([job], recordings, clean, Distorter(), 1, "encoding")["a"]
        assert outputs.failed == {"r1": "it is silent"}
        return {name: features["mean"] for name, features in outputs.features.items()}

    with pytest.raises(KeyboardInterrupt):
        run(stop="r4")
    stored = JsonStore(tmp_path / "a", "x").features.keys()
    assert stored
    encoded.clear()
    means = run()
    assert set(encoded) == {"r0", "r2", "r3", "r4", "r5"} - stored
    assert means == {"r0": 0.1, "r2": 0.3, "r3": 0.4, "r4": 0.5, "r5": 0.6}
    assert list(means) == ["r0", "r2", "r3", "r4", "r5"]

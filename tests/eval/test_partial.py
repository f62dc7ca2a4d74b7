from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.cascade.data import TimedWord, Transcript
from speechssl.eval.partial import PartialResult, from_json, to_json
from speechssl.eval.run import Encoded, Encoding, ResultFile, encode_recordings, evaluate_files
from speechssl.speechbert.system import AudioWords
from speechssl.timing import RunLength

FLOATS = st.floats(allow_nan=False)
ARRAYS = st.lists(FLOATS, max_size=4).map(np.array) | st.integers(0, 9).map(np.int32)
PARTS = st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=3)
FEATURES = st.recursive(
    PARTS,
    lambda x: (
        st.lists(x, max_size=3)
        | st.lists(x, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), x, max_size=3)
    ),
)


@given(FEATURES)
def test_features_come_back_as_they_were(features: Any) -> None:
    back = from_json(to_json(features))
    assert back == features and type(back) is type(features)


@given(ARRAYS)
def test_arrays_keep_type_shape_and_bits(array: Any) -> None:
    back = from_json(to_json(array))
    assert (
        back.dtype == array.dtype
        and back.shape == array.shape
        and back.tobytes() == array.tobytes()
        and type(back) is type(array)
    )


def test_what_systems_encode_comes_back(tmp_path: Path) -> None:
    words = Transcript((TimedWord("one", 0.1, 0.5, 0.9), TimedWord("two", 0.5, 0.9, 0.8)), "")
    units = RunLength(np.array([3, 1]), np.array([2, 5]))
    codes = AudioWords(np.ones((2, 3), np.float32), np.array([0.0, 0.1]), np.array([0.1, 0.2]))
    kept = PartialResult(tmp_path / "a.partial", "x")
    for name, features in (("words", words), ("units", units), ("codes", codes)):
        kept.add(name, features)
    back = PartialResult(tmp_path / "a.partial", "x").features
    assert back["words"] == words
    assert back["units"].units.tolist() == [3, 1] and back["units"].lengths.tolist() == [2, 5]
    assert back["codes"].codes.dtype == np.float32 and back["codes"].ends.tolist() == [0.1, 0.2]
    with pytest.raises(TypeError, match="features of the type object"):
        to_json(object())


@pytest.mark.parametrize(
    "kind", [["os", "system"], ["speechssl.artifacts", "write_text"], ["speechssl.nowhere", "X"]]
)
def test_nothing_but_features_is_made_from_a_line(tmp_path: Path, kind: list[str]) -> None:
    kept = PartialResult(tmp_path / "a.partial", "x")
    kept.add("a", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "speechssl.eval.partial.to_json", lambda _: {"class": kind, "fields": ["true"]}
        )
        kept.add("b", 2)
    assert PartialResult(kept.path, "x").features == {"a": 1}


def test_a_line_cut_short_is_left_out_and_other_inputs_keep_nothing(tmp_path: Path) -> None:
    kept = PartialResult(tmp_path / "a.partial", "x")
    for n in range(4):
        kept.add(str(n), n)
    whole = kept.path.read_bytes()
    kept.path.write_bytes(whole[:-3])
    again = PartialResult(kept.path, "x")
    assert again.features == {"0": 0, "1": 1, "2": 2}
    again.add("next", 5)
    assert PartialResult(kept.path, "x").features == {"0": 0, "1": 1, "2": 2, "next": 5}
    assert PartialResult(kept.path, "y").features == {}
    other = PartialResult(kept.path, "y")
    other.add("a", 1)
    assert PartialResult(kept.path, "y").features == {"a": 1}


def test_a_killed_run_goes_on_with_the_next_recording(tmp_path: Path) -> None:
    items = [f"r{n}" for n in range(6)]
    encoded: list[str] = []

    def run(stop: str, made_from: str = "x") -> Mapping[str, Any]:
        def encode_one(item: str, samples: np.ndarray | None) -> dict[str, float]:
            if item == stop:
                raise KeyboardInterrupt
            if item == "r1":
                raise ValueError("it is silent")
            encoded.append(item)
            return {"mean": float(np.mean(samples))}  # type: ignore[arg-type]

        def encode(missing: Any) -> dict[str, Encoded[str]]:
            partial = {file.system: file.partial for file in missing}
            read = lambda item: np.full(10, float(item[1:]), np.float32)  # noqa: E731
            return encode_recordings(
                items, read, lambda x, _: x, {"a": Encoding(encode_one)}, 1, "encoding", partial
            )

        file = ResultFile("a", tmp_path / "a.json", made_from, "a, clean")
        score = lambda _, features: {"means": {i: x["mean"] for i, x in features.items()}}  # noqa: E731
        return evaluate_files([file], encode, score)[0]

    with pytest.raises(KeyboardInterrupt):
        run("r4")
    first = list(encoded)
    assert set(first) <= {"r0", "r2", "r3", "r5"} and (tmp_path / "a.partial").is_file()
    kept = len(PartialResult(tmp_path / "a.partial", "x").features)
    assert kept
    encoded.clear()
    made = run("")
    assert len(encoded) == 5 - kept and not set(encoded) & {"r0"}
    # in the order of the recordings
    assert made["means"] == {f"r{n}": float(n) for n in (0, 2, 3, 4, 5)}
    assert list(made["means"]) == ["r0", "r2", "r3", "r4", "r5"]
    assert not (tmp_path / "a.partial").exists()

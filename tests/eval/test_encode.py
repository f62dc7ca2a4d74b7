"""Features come back from the store as they were."""

import numpy as np
import pytest

from speechssl.cascade.data import TimedWord, Transcript
from speechssl.eval.encode import (
    FeatureStore,
    from_json,
)
from speechssl.speechbert.system import AudioWords
from speechssl.timing import RunLength


def test_transcripts_units_and_codes_come_back(tmp_path):
    words = Transcript((TimedWord("one", 0.1, 0.5, 0.9), TimedWord("two", 0.5, 0.9, 0.8)), "")
    units = RunLength(np.array([3, 1]), np.array([2, 5]))
    codes = AudioWords(np.ones((2, 3), np.float32), np.array([0.0, 0.1]), np.array([0.1, 0.2]))
    store = FeatureStore(tmp_path / "a", "x")
    labels = {"action": ["on", None], 3: (True, 0.5)}
    features = {"words": words, "units": units, "codes": codes, "labels": labels}
    for name, value in features.items():
        store.add(name, value)
    read = FeatureStore(tmp_path / "a", "x").features
    assert (read["words"], read["labels"]) == (words, labels)
    assert read["units"].lengths.tolist() == [2, 5]
    assert read["codes"].codes.dtype == np.float32


@pytest.mark.parametrize("kind", [["os", "system"], ["speechssl.artifacts", "write_text"]])
def test_a_line_that_names_another_class_than_features_is_refused(kind):
    with pytest.raises(ValueError, match=kind[0]):
        from_json({"class": kind, "fields": ["true"]})

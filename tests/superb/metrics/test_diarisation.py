"""The diarisation error rate: pyannote's numbers, the cases that are counted by hand, and what must never change it."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyannote.core import Annotation, Segment, Timeline
from pyannote.metrics.diarization import DiarizationErrorRate

from speechssl.data.utterances import Turn
from speechssl.superb.tasks.diarisation import NONE, diarisation_errors, names_together


@st.composite
def turns(draw, names="abc", most=8):
    """Turns on a grid of a quarter of a second, which touch and overlap now and then."""
    found = []
    for _ in range(draw(st.integers(0, most))):
        start, length = draw(st.integers(0, 40)), draw(st.integers(1, 12))
        found.append(Turn(draw(st.sampled_from(names)), start / 4, (start + length) / 4))
    return tuple(found)


def annotation(found):
    """As pyannote wants it: touching and overlapping turns of one person are one."""
    made = Annotation(uri="x")
    for number, turn in enumerate(found):
        made[Segment(turn.start, turn.end), number] = turn.speaker
    return made.support()


@given(turns(), turns("1234"), st.sampled_from([0.0, 0.1, 0.25, 0.6]))
def test_it_is_pyannotes(truth, said, collar):
    theirs = DiarizationErrorRate(collar=2 * collar)(  # theirs is both sides together
        annotation(truth), annotation(said), uem=Timeline([Segment(0, 20)]), detailed=True
    )
    found = diarisation_errors(truth, said, collar)
    ours = [found.speech, found.missed, found.false_alarms, found.confused]
    assert ours == pytest.approx([theirs[name] for name in ("total", "missed detection", "false alarm", "confusion")], abs=1e-6)
    if found.speech:
        assert found.rate == pytest.approx(theirs["diarization error rate"])


@pytest.mark.parametrize("seed", range(20))
def test_it_is_pyannotes_at_any_time(seed):
    rng = np.random.default_rng(seed)
    truth, said = (
        tuple(Turn(rng.choice(list(names)), start, start + length) for start, length in rng.uniform(0.01, 30, (25, 2)))
        for names in ("abcd", "123")
    )
    theirs = DiarizationErrorRate()(annotation(truth), annotation(said), uem=Timeline([Segment(0, 100)]))
    assert diarisation_errors(truth, said).rate == pytest.approx(theirs)


def test_by_hand():
    truth = (Turn("ann", 0, 4), Turn("bob", 3, 6))
    said = (Turn("1", 1, 5), Turn("2", 5, 7))
    found = diarisation_errors(truth, said)
    assert (found.speech, found.missed, found.false_alarms, found.confused) == (7, 2, 1, 1)
    assert found.rate == 4 / 7 and names_together(truth, said) == {"1": "ann", "2": "bob"}
    assert diarisation_errors(truth, ()).missed == diarisation_errors(truth, ()).wrong == 7
    assert diarisation_errors((), said).false_alarms == 6 and math.isnan(diarisation_errors((), said).rate)
    assert diarisation_errors((), ()) == NONE == diarisation_errors((), (), 0.25)


def test_a_collar_by_hand():
    truth, said = (Turn("ann", 1, 2), Turn("ann", 2, 3)), (Turn("1", 1.2, 3.1),)
    found = diarisation_errors(truth, said, 0.25)  # at 2 s nobody begins
    assert (found.speech, found.wrong) == (pytest.approx(1.5), 0)
    assert diarisation_errors(truth, said, 0.1).missed == pytest.approx(0.1)


@given(turns(), st.permutations("abc"), st.permutations("123"))
def test_names_do_not_matter(truth, names, claims):
    said = tuple(Turn("123"["abc".index(t.speaker)], t.start + 0.1, t.end) for t in truth)
    renamed = tuple(Turn(dict(zip("abc", names, strict=True))[t.speaker], t.start, t.end) for t in truth)
    reclaimed = tuple(Turn(dict(zip("123", claims, strict=True))[t.speaker], t.start, t.end) for t in reversed(said))
    before, after = diarisation_errors(truth, said), diarisation_errors(renamed, reclaimed)
    assert before.wrong == pytest.approx(after.wrong) and before.speech == pytest.approx(after.speech)


@given(turns(), st.sampled_from([0.0, 0.25]))
def test_the_truth_has_no_error(truth, collar):
    assert diarisation_errors(truth, truth, collar).wrong == pytest.approx(0)


@given(turns(), turns("1234"))
def test_a_wider_collar_never_adds_errors(truth, said):
    found = [diarisation_errors(truth, said, collar) for collar in (0.0, 0.05, 0.25, 1.0)]
    for narrow, wide in pairwise(found):
        assert wide.wrong <= narrow.wrong + 1e-9 and wide.speech <= narrow.speech + 1e-9


@given(turns(), turns("1234"))
def test_recordings_add_up(truth, said):
    later = [tuple(Turn(t.speaker, t.start + 100, t.end + 100) for t in found) for found in (truth, said)]
    twice = diarisation_errors((*truth, *later[0]), (*said, *later[1]))
    once = diarisation_errors(truth, said)
    assert (once + once).speech == pytest.approx(twice.speech) and (once + once).wrong == pytest.approx(twice.wrong)
    assert once.missed + once.confused <= once.speech + 1e-9

"""Unit quality against brute force and scikit-learn."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.errors import InputError
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.quality import (
    SILENCE,
    abx,
    bit_rate,
    normalised_distance,
    phone_frames,
    purity,
    read_alignment,
    read_textgrid,
    same_text,
    speaker_probe,
    stability,
    unit_edit_distance,
    usage,
)

GRID = FrameGrid(16_000, 320, 400)
sequences = st.lists(st.integers(0, 4), max_size=8).map(lambda x: np.array(x, np.int64))


def edits(a, b):
    """Edit distance by the textbook recursion."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row, before = [i], row
        for j, y in enumerate(b, 1):
            row.append(min(row[-1] + 1, before[j] + 1, before[j - 1] + (x != y)))
    return row[-1]


# ---- the same text by two voices


@given(sequences, sequences)
def test_distance_is_edits_over_the_longer_length(a, b):
    longer = max(len(a), len(b))
    assert normalised_distance(a, b) == pytest.approx(edits(a, b) / longer if longer else 0)
    assert normalised_distance(a, b) == normalised_distance(b, a)
    assert normalised_distance(a, a) == 0


# ---- purity


def test_one_unit_for_all_says_nothing():
    phones = np.repeat([0, 1], [30, 10])
    found = purity([np.zeros(40, int)], [phones])
    assert found["phone_purity"] == 0.75 and found["cluster_purity"] == 1 and found["pnmi"] == pytest.approx(0)
    assert list(purity([phones * 7 + 3], [phones]).values()) == pytest.approx([1, 1, 1])  # units that are phones
    half = purity([np.array([4, 4, 4, 9, 9, 9])], [np.array([0, 0, 1, 1, 1, 1])])  # I = H(phone) - H(phone | unit)
    phone, given = (-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (1 / 3, 2 / 3))
    assert half == pytest.approx({"phone_purity": 5 / 6, "cluster_purity": 5 / 6, "pnmi": 1 - given / 2 / phone})
    assert math.isnan(purity([np.arange(3)], [np.zeros(3, int)])["pnmi"])
    for nothing in ([], [np.zeros(0, int)]):
        with pytest.raises(ValueError):
            purity(nothing, nothing)


# ---- phones of frames


def test_a_frame_has_the_phone_in_its_middle():
    phones = [("a", 0.0, 0.1), ("b", 0.1, 0.15), ("a", 0.15, 0.4)]
    names = {"z": 0}
    found = phone_frames(phones, GRID, 20, names)
    assert names == {"z": 0, "a": 1, "b": 2}
    for frame, phone in enumerate(found):
        middle = (GRID.first_sample(frame) if frame else GRID.offset) / 16_000 + 0.01
        at = min(middle, 0.3999)
        assert phone == names[next(n for n, start, end in phones if start <= at < end)], frame


def test_frames_outside_every_phone_are_silence():
    names = {}
    found = phone_frames([("a", 0.1, 0.2), ("b", 0.3, 0.4)], GRID, 30, names)
    assert names == {"a": 0, "b": 1, "sil": 2}
    assert np.array_equal(found, np.repeat([2, 0, 2, 1, 2], [5, 5, 5, 5, 10]))
    assert np.bincount(phone_frames([("a", 0.1, 0.2)], GRID, 10, {})).tolist() == [5, 5]
    assert phone_frames([("sil", 0.0, 0.1), ("a", 0.1, 0.2)], GRID, 12, {}).tolist() == [0] * 5 + [1] * 5 + [0] * 2
    assert phone_frames([], GRID, 2, {}).tolist() == [0, 0]


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=30), st.integers(0, 99))
def test_of_phones_that_tile_a_recording_every_frame_has_the_last_that_began(lengths, seed):
    """What corpora without gaps have always been given."""
    borders = np.r_[0, np.cumsum(lengths)] / 16_000
    text = np.random.default_rng(seed).choice(list("abcd"), len(lengths))
    phones = [(str(n), round(a, 5), round(b, 5)) for n, a, b in zip(text, borders, borders[1:], strict=False)]
    frames, names = GRID.frames(sum(lengths)), {}
    middles = (np.arange(frames) * 320 + 200) / 16_000
    began = [max(i for i, (_, start, _) in enumerate(phones) if start <= middle) for middle in middles]
    assert [list(names)[i] for i in phone_frames(phones, GRID, frames, names)] == [text[i] for i in began]
    assert "sil" not in names


# ---- usage, bit rate, stability


def runs(*frames):
    return RunLength.of_frames(np.array(frames, np.int64))


def test_usage_counts_frames():
    used = usage([runs(0, 0, 0, 1), runs(3, 3, 1, 1)], 8)
    bits = -(2 * 0.375 * np.log2(0.375) + 0.25 * np.log2(0.25))
    assert used["usage_entropy_bits"] == pytest.approx(bits) and used["usage_entropy_share"] == pytest.approx(bits / 3)
    assert used["unused_units"] == 5
    assert used["most_used"] == [{"unit": 0, "share": 0.375}, {"unit": 1, "share": 0.375}, {"unit": 3, "share": 0.25}]
    assert usage([runs(*range(8))], 8)["usage_entropy_share"] == pytest.approx(1)
    assert usage([runs(0)], 1)["usage_entropy_share"] == 1 and usage([runs(2, 2)], 4)["usage_entropy_bits"] == 0


def test_the_bit_rate_is_symbols_a_second_times_their_entropy():
    found = bit_rate([runs(0, 0, 1, 0), runs(1, 1, 1, 1)], 2.0)  # 0 x2, 1, 0 | 1 x4
    # two units, equally often; four different (unit, length)
    assert found == pytest.approx({"units_a_second": 2.0, "bits_a_second": 4 / 2 * 1.0, "bits_a_second_timed": 4 / 2 * 2.0})
    assert bit_rate([runs(5, 5, 5)], 1.0)["bits_a_second"] == 0


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=5), st.integers(0, 99))
def test_stability_is_edits_over_clean_units(clean, seed):
    rng = np.random.default_rng(seed)
    noisy = [np.where(rng.random(len(x)) < 0.4, rng.integers(0, 5, len(x)), x) for x in clean]
    found = stability([runs(*x) for x in clean], [runs(*x) for x in noisy])
    pairs = [(runs(*a).units.tolist(), runs(*b).units.tolist()) for a, b in zip(clean, noisy, strict=True)]
    assert found["unit_error_rate"] == pytest.approx(sum(edits(b, a) for a, b in pairs) / sum(len(a) for a, _ in pairs))
    assert found["frames_changed"] == pytest.approx(np.mean(np.concatenate(clean) != np.concatenate(noisy)))


def test_the_same_units_are_stable_and_none_are_an_error():
    assert stability([runs(1, 2, 2)], [runs(1, 2, 2)]) == {"unit_error_rate": 0.0, "frames_changed": 0.0}
    for nothing in (lambda: stability([runs()], [runs()]), lambda: usage([runs()], 4)):
        with pytest.raises(ValueError, match="there are no"):
            nothing()


# ---- alignments as aligners write them: TextGrids long and short, JSONL; gaps, names, and what is wrong with a file


LONG = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 0.75
tiers? <exists>
size = 3
item []:
    item [1]:
        class = "IntervalTier"
        name = "words"
        xmin = 0
        xmax = 0.75
        intervals: size = 1
        intervals [1]:
            xmin = 0
            xmax = 0.75
            text = "3 ""quoted"" [9] = 7"
    item [2]:
        class = "TextTier"
        name = "marks"
        xmin = 0
        xmax = 0.75
        points: size = 1
        points [1]:
            number = 0.5
            mark = "x"
    item [3]:
        class = "IntervalTier"
        name = "NAME - phones"
        xmin = 0
        xmax = 0.75
        intervals: size = 3
        intervals [1]:
            xmin = 0
            xmax = 0.25
            text = ""
        intervals [2]:
            xmin = 0.25
            xmax = 5e-1
            text = "AH0"
        intervals [3]:
            xmin = .5
            xmax = 0.75
            text = "s"
""".replace("xmin = .5", "xmin = 0.5")
SHORT = """File type = "ooTextFile"
Object class = "TextGrid"

0
0.75
<exists>
1
"IntervalTier"
"whatever"
0
0.75
3
0
0.25
""
0.25
0.5
"AH0"
0.5
0.75
"s"
"""
PHONES = [(SILENCE, 0.0, 0.25), ("AH0", 0.25, 0.5), ("s", 0.5, 0.75)]


@pytest.mark.parametrize("text", [LONG, SHORT])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_formats_of_a_textgrid_are_read(tmp_path, text, encoding, end):
    path = tmp_path / "a.TextGrid"
    path.write_bytes(text.replace("\n", end).encode(encoding))
    assert read_textgrid(path) == PHONES
    assert read_alignment(path) == {"a": PHONES}


def test_a_folder_is_read_by_the_paths_in_it(tmp_path):
    (tmp_path / "s1").mkdir()
    for name in ("x.TextGrid", "s1/y.textgrid"):
        (tmp_path / name).write_text(SHORT)
    (tmp_path / "notes.txt").write_text("no alignment")
    assert read_alignment(tmp_path) == {"s1/y": PHONES, "x": PHONES}


def test_jsonl_is_read_gaps_are_silence_and_small_overlaps_are_clipped(tmp_path):
    sil, given = (
        SILENCE,
        {
            1: [["a", 0.1, 0.2], ["b", 0.4, 0.5]],
            "x": [["", 0, 0.5]],
            "pauses": [["a", 0, 0.2], ["_", 0.2, 0.3], ["b", 0.5, 0.6]],
            "overlap": [["a", 0, 0.2], ["b", 0.19, 0.3], ["c", 0.3, 0.3], ["d", 0.3, 0.4]],  # c has no length
        },
    )
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"id": i, "phones": p, "more": 1}) for i, p in given.items()))
    assert read_alignment(tmp_path / "a.jsonl") == {
        "1": [(sil, 0.0, 0.1), ("a", 0.1, 0.2), (sil, 0.2, 0.4), ("b", 0.4, 0.5)],
        "x": [(sil, 0.0, 0.5)],
        "pauses": [("a", 0.0, 0.2), (sil, 0.2, 0.3), (sil, 0.3, 0.5), ("b", 0.5, 0.6)],
        "overlap": [("a", 0.0, 0.2), ("b", 0.2, 0.3), ("d", 0.3, 0.4)],
    }


def test_a_recording_that_cannot_be_used_is_set_aside(tmp_path, capsys):
    (tmp_path / "bad.TextGrid").write_text(SHORT.replace("0.25\n0.5\n", "0.1\n0.5\n"))
    (tmp_path / "good.TextGrid").write_text(SHORT)
    (tmp_path / "none.TextGrid").write_text("")
    assert read_alignment(tmp_path) == {"good": PHONES}
    err = capsys.readouterr().err
    assert "set aside bad: " in err and "phones must be in order" in err and "2 recordings set aside" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "x"}', "a.jsonl:1 is not"),
        ('{"phones": []}', "a.jsonl:1 is not"),
        ('{"id": "x", "phones": [["a", 0]]}', "a.jsonl:1 is not"),
        ('{"id": "x", "phones": [["a", "b", 1]]}', "a.jsonl:1 is not"),
        ('{"id": "x", "phones": []}', "a.jsonl:1 has no phones"),
        ('{"id": "x", "phones": [["a", 0, 1], ["b", 0.5, 2]]}', "phones must be in order"),
        ('{"id": "x", "phones": [["a", 1, 1]]}', "a.jsonl:1 has no phones"),
        ('{"id": "x", "phones": [["a", 1, 0.5]]}', "phones must be in order"),
        ('{"id": "x", "phones": [["a", 0, 1]]}\n{"id": "x", "phones": [["b", 0, 1]]}', "a.jsonl:2 has the id x, as line 1 has"),
        ('{"id": "x", "phones": [["a", 0, NaN]]}', "phones must be in order"),
        ("{", "is not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(InputError, match=message):
        read_alignment(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "content", [b"", b"no grid", LONG[:600].encode(), SHORT[:-20].encode(), b"\xff\xff\xff", SHORT[40:].encode()]
)
def test_a_bad_textgrid_is_named(tmp_path, content):
    (tmp_path / "a.TextGrid").write_bytes(content)
    with pytest.raises(InputError, match="cannot read .*a.TextGrid as a TextGrid"):
        read_alignment(tmp_path / "a.TextGrid")


def test_what_is_no_alignment_of_phones_is_named(tmp_path):
    with pytest.raises(InputError, match="contains no alignment"):
        read_alignment(tmp_path)
    with pytest.raises(InputError, match="contains no alignment"):
        read_alignment(tmp_path / "none.TextGrid")
    with pytest.raises(InputError, match="cannot read the manifest"):
        read_alignment(tmp_path / "none.jsonl")
    (tmp_path / "a.TextGrid").write_text(LONG.replace("NAME - phones", "lines"))
    with pytest.raises(InputError, match="has the interval tiers words, lines; name one of them phones"):
        read_alignment(tmp_path / "a.TextGrid")


def words(rng, texts=6, speakers=4, tokens=2, own=0):
    """Units of `tokens` recordings of every text by every speaker, alike but for `own` units of the speaker at the front."""
    spoken = {t: rng.integers(10, 40, 12) for t in range(texts)}
    rows = [(t, s) for t in range(texts) for s in range(speakers) for _ in range(tokens)]
    units = [np.concatenate([np.full(own, s), spoken[t], rng.integers(10, 40, 1)]) for t, s in rows]
    return units, [str(t) for t, _ in rows], [str(s) for _, s in rows]


def test_same_text_of_many_speakers_is_that_of_all_pairs_by_two_of_them():
    units, texts, speakers = words(np.random.default_rng(0))
    groups = ["machine" if s in "01" else "people" for s in speakers]
    rows = {row["groups"]: row for row in same_text(units, texts, speakers, groups)}
    assert list(rows) == ["machine", "machine - people", "people"]
    assert rows["machine"]["pairs"] == 6 * 2 * 2 and rows["machine - people"]["pairs"] == 6 * 4 * 4
    same, other = [], []
    for i, j in itertools.combinations(range(len(units)), 2):
        if speakers[i] != speakers[j]:
            (same if texts[i] == texts[j] else other).append(normalised_distance(units[i], units[j]))
    every = same_text(units, texts, speakers)[0]
    assert every["same_text_distance"] == pytest.approx(np.mean(same))
    assert every["other_text_distance"] == pytest.approx(np.mean(other))
    auc = np.mean([(a < b) + (a == b) / 2 for a in same for b in other])
    assert every["same_text_auc"] == pytest.approx(auc)
    for texts, speakers, reason in (
        ("ab", "cc", "all recordings have the speaker c"),
        ("aa", "cd", "all recordings have the text a"),
        ("ab", "cd", "no text is said by two speakers"),
    ):
        with pytest.raises(ValueError, match=reason):
            same_text(units[:2], list(texts), list(speakers))


@pytest.mark.slow
def test_abx_tells_words_apart_within_and_across_speakers():
    rng = np.random.default_rng(1)
    assert max(abx(*words(rng)).values()) < 0.01
    hidden = abx(
        *words(rng, own=40)
    )  # the speaker's units outweigh the word's: those of one speaker differ by the word all the same
    assert hidden["abx_within"] < 0.01 and hidden["abx_across"] < 0.01
    units, texts, speakers = words(rng, tokens=1)
    assert math.isnan(abx(units, texts, speakers)["abx_within"])
    random = [rng.integers(10, 40, 12) for _ in units]
    assert 0.3 < abx(random, texts, speakers)["abx_across"] < 0.7


def test_the_probe_finds_speakers_where_units_tell_them():
    rng = np.random.default_rng(2)
    found = [speaker_probe([RunLength.of_frames(u) for u in words(rng, own=own)[0]], words(rng)[2], 40) for own in (0, 4)]
    assert found[0]["speaker_accuracy"] < 0.6 < 0.9 < found[1]["speaker_accuracy"] and found[0]["speaker_chance"] == 0.25
    assert math.isnan(speaker_probe([RunLength.of_frames(np.arange(3))] * 3, ["a", "a", "b"], 5)["speaker_accuracy"])


def test_unit_edit_distance_is_a_mean_over_recordings_of_any_lengths():
    runs = [RunLength.of_frames(np.array(x)) for x in ([1, 1, 2, 3], [1, 2, 2, 2, 3, 4], [5, 5])]
    assert unit_edit_distance(runs, runs) == 0
    assert unit_edit_distance(runs[:2], [runs[1], runs[0]]) == pytest.approx(1 / 4)
    assert unit_edit_distance(runs[2:], runs[:1]) == 1
    with pytest.raises(ValueError, match="no recordings"):
        unit_edit_distance([], [])

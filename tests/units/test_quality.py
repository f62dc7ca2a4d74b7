"""Unit quality: the measures against brute force and scikit-learn; the table, with phones as the
topline and MFCC as the floor; the picture.
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.timing import FrameGrid, RunLength
from speechssl.units import measures
from speechssl.units.fit import fit_units
from speechssl.units.options import Evaluate, Fit
from speechssl.units.phones import SILENCE, phone_frames, read_alignment
from speechssl.units.quality import evaluate_units, format_measures

from ..data.test_textgrid import SHORT
from ..files import refused, write_lines
from ..test_metrics import edit_distance

GRID = FrameGrid(16_000, 320, 400)
sequences = st.lists(st.integers(0, 4), max_size=8).map(lambda x: np.array(x, np.int64))


# ---- the same text by two voices


@given(sequences, sequences)
def test_distance_is_edits_over_the_longer_length(a, b):
    longer = max(len(a), len(b))
    expected = edit_distance(list(a), list(b)) / max(longer, 1)
    assert measures.normalised_distance(a, b) == pytest.approx(expected)


# ---- purity


def test_one_unit_for_all_says_nothing():
    phones = np.repeat([0, 1], [30, 10])
    found = measures.purity([np.zeros(40, int)], [phones])
    assert found["phone_purity"] == 0.75
    assert found["cluster_purity"] == 1
    assert found["pnmi"] == pytest.approx(0)
    # units that are phones
    assert list(measures.purity([phones * 7 + 3], [phones]).values()) == pytest.approx([1, 1, 1])
    # I = H(phone) - H(phone | unit)
    half = measures.purity([np.array([4, 4, 4, 9, 9, 9])], [np.array([0, 0, 1, 1, 1, 1])])
    phone, given = (-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (1 / 3, 2 / 3))
    assert half == pytest.approx(
        {"phone_purity": 5 / 6, "cluster_purity": 5 / 6, "pnmi": 1 - given / 2 / phone}
    )
    assert math.isnan(measures.purity([np.arange(3)], [np.zeros(3, int)])["pnmi"])


# ---- phones of frames


def test_a_frame_has_the_phone_in_its_middle():
    phones = [("a", 0.0, 0.1), ("b", 0.1, 0.15), ("a", 0.15, 0.4)]
    names = {"z": 0}
    found = phone_frames(phones, GRID, 30, names)
    assert names == {"z": 0, "a": 1, "b": 2, SILENCE: 3}
    assert (found[20:] == 3).all()
    for frame, phone in enumerate(found[:20]):
        middle = (GRID.first_sample(frame) if frame else GRID.offset) / 16_000 + 0.01
        at = min(middle, 0.3999)
        assert phone == names[next(n for n, start, end in phones if start <= at < end)], frame


# ---- usage, bit rate


def runs(*frames):
    return RunLength.of_frames(np.array(frames, np.int64), seconds=1.0)


def test_usage_counts_frames():
    used = measures.usage([runs(0, 0, 0, 1), runs(3, 3, 1, 1)], 8)
    bits = -(2 * 0.375 * np.log2(0.375) + 0.25 * np.log2(0.25))
    assert used["usage_entropy_bits"] == pytest.approx(bits)
    assert used["usage_entropy_share"] == pytest.approx(bits / 3)
    assert used["unused_units"] == 5


def test_the_bit_rate_is_symbols_a_second_times_their_entropy():
    found = measures.bit_rate([runs(0, 0, 1, 0), runs(1, 1, 1, 1)])  # 0 x2, 1, 0 | 1 x4
    # two units, equally often; four different (unit, length)
    assert found == pytest.approx(
        {"units_a_second": 2.0, "bits_a_second": 4 / 2 * 1.0, "bits_a_second_timed": 4 / 2 * 2.0}
    )
    assert measures.bit_rate([runs(5, 5, 5)])["bits_a_second"] == 0


def test_phones_in_milliseconds_are_refused():
    phones = [("a", 0.0, 200.0), ("b", 200.0, 600.0)]
    refused("times look like milliseconds", phone_frames, phones, GRID, 30, {})


# ---- alignments as aligners write them: TextGrids long and short, JSONL; gaps, names, and what is
# wrong with a file


PHONES = [(SILENCE, 0.0, 0.25), ("AH0", 0.25, 0.5), ("s", 0.5, 0.75)]


def test_a_folder_is_read_by_the_paths_in_it(tmp_path):
    (tmp_path / "s1").mkdir()
    for name in ("x.TextGrid", "s1/y.textgrid"):
        (tmp_path / name).write_text(SHORT)
    (tmp_path / "notes.txt").write_text("no alignment")
    assert read_alignment(tmp_path) == {"s1/y": PHONES, "x": PHONES}


def test_jsonl_is_read_gaps_are_silence_and_small_overlaps_are_clipped(tmp_path):
    sil = SILENCE
    given = {
        1: [["a", 0.1, 0.2], ["b", 0.4, 0.5]],
        "x": [["", 0, 0.5]],
        "pauses": [["a", 0, 0.2], ["_", 0.2, 0.3], ["b", 0.5, 0.6]],
        # c has no length
        "overlap": [["a", 0, 0.2], ["b", 0.19, 0.3], ["c", 0.3, 0.3], ["d", 0.3, 0.4]],
    }
    records = [{"id": i, "phones": p, "more": 1} for i, p in given.items()]
    write_lines(tmp_path / "a.jsonl", records)
    assert read_alignment(tmp_path / "a.jsonl") == {
        "1": [(sil, 0.0, 0.1), ("a", 0.1, 0.2), (sil, 0.2, 0.4), ("b", 0.4, 0.5)],
        "x": [(sil, 0.0, 0.5)],
        "pauses": [("a", 0.0, 0.2), (sil, 0.2, 0.3), (sil, 0.3, 0.5), ("b", 0.5, 0.6)],
        "overlap": [("a", 0.0, 0.2), ("b", 0.2, 0.3), ("d", 0.3, 0.4)],
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"id": "x"}'),
        ("a.jsonl", '{"id": "x", "phones": [["a", 0, 1], ["b", 0.5, 2]]}'),
        ("a.TextGrid", "no grid"),
        ("a.txt", "no alignment"),
    ],
)
def test_a_bad_alignment_is_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    refused(name.removesuffix(".txt"), read_alignment, tmp_path / name)


def words(rng, texts=6, speakers=4, tokens=2, own=0):
    """Units of `tokens` recordings of every text by every speaker, alike but for `own` units of the
    speaker at the front."""
    spoken = {t: rng.integers(10, 40, 12) for t in range(texts)}
    rows = [(t, s) for t in range(texts) for s in range(speakers) for _ in range(tokens)]
    units = [np.concatenate([np.full(own, s), spoken[t], rng.integers(10, 40, 1)]) for t, s in rows]
    return units, [str(t) for t, _ in rows], [str(s) for _, s in rows]


def test_same_text_of_many_speakers_is_that_of_all_pairs_by_two_of_them():
    units, texts, speakers = words(np.random.default_rng(0))
    groups = ["machine" if s in "01" else "people" for s in speakers]
    rows = {row["groups"]: row for row in measures.same_text(units, texts, speakers, groups)}
    assert list(rows) == ["machine", "machine - people", "people"]
    assert rows["machine"]["pairs"] == 6 * 2 * 2 and rows["machine - people"]["pairs"] == 6 * 4 * 4
    same, other = [], []
    for i, j in itertools.combinations(range(len(units)), 2):
        if speakers[i] != speakers[j]:
            distances = same if texts[i] == texts[j] else other
            distances.append(measures.normalised_distance(units[i], units[j]))
    every = measures.same_text(units, texts, speakers)[0]
    assert every["same_text_distance"] == pytest.approx(np.mean(same))
    assert every["other_text_distance"] == pytest.approx(np.mean(other))
    auc = np.mean([(a < b) + (a == b) / 2 for a in same for b in other])
    assert every["same_text_auc"] == pytest.approx(auc)
    for texts, speakers in (("ab", "cc"), ("aa", "cd"), ("ab", "cd")):
        with pytest.raises(ValueError, match="no text is spoken by two speakers"):
            measures.same_text(units[:2], list(texts), list(speakers))


@pytest.mark.slow
def test_abx_tells_words_apart_within_and_across_speakers():
    rng = np.random.default_rng(1)
    assert max(measures.abx(*words(rng)).values()) < 0.01
    # the speaker's units outweigh the word's: those of one speaker differ by the word all the same
    hidden = measures.abx(*words(rng, own=40))
    assert hidden["abx_within"] < 0.01 and hidden["abx_across"] < 0.01
    units, texts, speakers = words(rng, tokens=1)
    assert math.isnan(measures.abx(units, texts, speakers)["abx_within"])
    random = [rng.integers(10, 40, 12) for _ in units]
    assert 0.3 < measures.abx(random, texts, speakers)["abx_across"] < 0.7


def test_the_probe_finds_speakers_where_units_tell_them():
    rng = np.random.default_rng(2)
    accuracies = []
    for own in (0, 4):
        units, _, speakers = words(rng, own=own)
        found = measures.speaker_probe([RunLength.of_frames(u) for u in units], speakers, 40)
        accuracies.append(found["speaker_accuracy"])
        assert found["speaker_chance"] == 0.25
    assert accuracies[0] < 0.6 < 0.9 < accuracies[1]


def test_unit_edit_distance_is_a_mean_over_recordings_of_any_lengths():
    runs = [RunLength.of_frames(np.array(x)) for x in ([1, 1, 2, 3], [1, 2, 2, 2, 3, 4], [5, 5])]
    assert measures.unit_edit_distance(runs, runs) == 0
    assert measures.unit_edit_distance(runs[:2], [runs[1], runs[0]]) == pytest.approx(1 / 4)
    assert measures.unit_edit_distance(runs[2:], runs[:1]) == 1


# ---- any audio


@pytest.fixture
def folder(tmp_path):
    """Three recordings and a codebook on MFCCs."""
    from speechssl.audio import write_flac

    rng, root = np.random.default_rng(0), tmp_path / "audio"
    for i in range(3):
        tone = np.sin(np.arange(16_000 + 4_000 * i) ** 1.5 * 1e-3 * (i + 1))
        write_flac(root / f"r{i}.flac", 0.4 * tone + rng.normal(0, 0.02, len(tone)))
    fit_units(Fit(source=root, encoder="mfcc", out=tmp_path / "book.safetensors", clusters=6))
    return root


def measured(source, **options):
    """The quality of the units of MFCCs, by the codebook beside the source."""
    book = source.with_name("book.safetensors")
    return evaluate_units(Evaluate(source=source, encoder="mfcc", codebook=book, **options))


@pytest.mark.slow
def test_a_folder_is_inspected(folder, tmp_path):
    found = measured(folder, out=tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == found
    assert found["bits_a_second"] < found["bits_a_second_timed"]
    assert "pnmi" not in found
    rows = found["stability"]
    assert [r["snr_db"] for r in rows[:4]] == [20, 10, 5, 0]
    assert {r["recordings"] for r in rows} == {3}
    assert rows[0]["unit_edit_distance"] < rows[3]["unit_edit_distance"] <= 1
    others = ["reverb", "pitch +2", "stretch 1.2", "mp3 16 kbps", "opus 8 kbps"]
    assert [r["condition"] for r in rows[4:]] == others
    printed = format_measures(found)
    assert any("unit edit distance (UED), pink 5 dB  0." in line for line in printed)
    assert measured(folder, noisy=1, conditions=("pink@0",))["stability"][0]["recordings"] == 1


@pytest.mark.slow
def test_a_list_is_measured_across_speakers_and_groups(folder, tmp_path):
    from speechssl.audio import read_audio, write_flac

    lines_of = ["audio,text,speaker,group"]
    for i, text in enumerate(("low", "high", "higher")):
        samples = read_audio(folder / f"r{i}.flac")
        for speaker, gain in (("ann", 1.0), ("bob", 0.5), ("eva", 0.25)):
            write_flac(folder / f"{speaker}-{i}.flac", gain * samples)
            group = "machine" if speaker == "eva" else "people"
            lines_of.append(f"audio/{speaker}-{i}.flac,{text},{speaker},{group}")
    listed = tmp_path / "list.csv"
    listed.write_text("\n".join(lines_of) + "\n")
    found = measured(listed, conditions=(), violins=tmp_path / "v.svg")
    assert [row["groups"] for row in found["same_text"]] == ["machine - people", "people"]
    assert all(row["same_text_auc"] > 0.9 for row in found["same_text"])
    assert found["abx_across"] < 0.1
    assert (tmp_path / "v.svg").is_file()
    assert any("AUC, machine - people" in line for line in format_measures(found))


def test_an_alignment_gives_purity(folder, tmp_path, capsys):
    lines = [{"id": f"r{i}", "phones": [["a", 0, 0.4], ["b", 0.5, 0.9]]} for i in range(2)]
    write_lines(tmp_path / "a.jsonl", lines)
    found = measured(folder, alignment=tmp_path / "a.jsonl", conditions=())
    assert 0 < found["pnmi"] < 1
    assert "of 2 of 3 recordings" in capsys.readouterr().err
    (tmp_path / "b.jsonl").write_text(json.dumps(lines[0] | {"id": "other"}))
    refused("b.jsonl", measured, folder, alignment=tmp_path / "b.jsonl")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("line 2 of .*list.csv", "audio,text,speaker\na.wav,,c\n"),
        ("line 2 of .*list.csv", "audio,text,speaker\n../a.wav,b,c\n"),
        ("list.csv", "audio,text,speaker\naudio/r0.flac,b,c\naudio/r1.flac,d,c\n"),
        ("r0.flac", "audio,text,speaker\nr0.flac,b,c\nr1.flac,d,e\n"),
    ],
)
def test_a_bad_list_is_named(folder, tmp_path, name, text):
    (tmp_path / "list.csv").write_text(text)
    refused(name, measured, tmp_path / "list.csv", conditions=())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"conditions": ("babble@5",)}, "babble@5"),
        ({"violins": Path("v.svg")}, "--violins"),
        ({"split": "dev"}, "dev"),
    ],
)
def test_what_cannot_be_measured_here_is_named(folder, options, named):
    refused(named, measured, folder, **options)

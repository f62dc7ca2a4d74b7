"""Tests of the measures of unit quality, against brute force and numbers by hand, of alignments
that are read, and of `speechssl units evaluate` on folders and lists."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from speechssl.data.records import Answer, Corpus, Passage, Question
from speechssl.timing import FrameGrid, RunLength
from speechssl.units import measures
from speechssl.units.fit import fit_units
from speechssl.units.options import Evaluate, Fit
from speechssl.units.phones import SILENCE, number_phones, read_alignment
from speechssl.units.quality import evaluate_units, format_measures

from ..data.test_textgrid import SHORT
from ..files import refused, write_lines
from ..test_metrics import edit_distance

GRID = FrameGrid(16_000, 320, 400)
unit_sequences = st.lists(st.integers(0, 4), max_size=8).map(lambda x: np.array(x, np.int64))


@given(unit_sequences, unit_sequences)
def test_distance_is_edits_over_the_longer_length(a, b):
    longer = max(len(a), len(b))
    expected = edit_distance(list(a), list(b)) / max(longer, 1)
    assert measures.measure_distance(a, b) == pytest.approx(expected)


# ---- purity


def test_purities_and_pnmi_are_those_by_hand():
    phones = np.repeat([0, 1], [30, 10])
    for units, expected in ((np.zeros(40, int), [0.75, 1, 0]), (phones * 7 + 3, [1, 1, 1])):
        purity = measures.purity([units], [phones])
        assert list(purity.values()) == pytest.approx(expected)
    # unit 4: phones 0, 0, 1; unit 9: phone 1 alone
    purity = measures.purity([np.array([4, 4, 4, 9, 9, 9])], [np.array([0, 0, 1, 1, 1, 1])])
    phone_entropy = entropy([1 / 3, 2 / 3])
    conditional_entropy = entropy([2 / 3, 1 / 3]) / 2  # H(phone | unit): only unit 4 has some
    pnmi = 1 - conditional_entropy / phone_entropy
    assert list(purity.values()) == pytest.approx([5 / 6, 5 / 6, pnmi])
    single_phone = measures.purity([np.arange(3)], [np.zeros(3, int)])
    assert math.isnan(single_phone["pnmi"])


# ---- phones of frames


def test_a_frame_has_the_phone_in_its_middle():
    phones = [("a", 0.0, 0.1), ("b", 0.1, 0.15), ("a", 0.15, 0.4)]
    numbers = {"z": 0}
    frames = number_phones(phones, GRID, 30, numbers)
    assert numbers == {"z": 0, "a": 1, "b": 2, SILENCE: 3}
    # a frame owns 20 ms, the first from 2.5 ms on, so that its middle is at 12.5 ms
    assert (frames[:5] == 1).all()
    assert (frames[5:7] == 2).all()
    assert (frames[7:20] == 1).all()  # the last middle is at 392.5 ms
    assert (frames[20:] == 3).all()
    in_milliseconds = [("a", 0.0, 200.0), ("b", 200.0, 600.0)]
    with pytest.raises(ValueError, match="times look like milliseconds"):
        number_phones(in_milliseconds, GRID, 30, {})


# ---- usage, bit rate


def runs(*frames):
    """Return the run-length units of frames that last a second together."""
    return RunLength.of_frames(np.array(frames, np.int64), seconds=1.0)


def test_the_best_ff1_of_units_is_over_all_answers():
    short, long = Answer("a", 0.02, 0.03), Answer("a", 0.0, 0.1)
    question = Question("q", "p", answers=(short, long))
    corpus = Corpus(Path(), "test", {"p": Passage("p")}, (question,))
    units = {"p": RunLength.of_frames(np.array([1] * 5 + [2] * 5), seconds=0.2)}
    best = measures.oracle_ff1(corpus, units, GRID)
    alone = [
        measures.oracle_ff1(
            replace(corpus, questions=(replace(question, answers=(a,)),)), units, GRID
        )
        for a in (short, long)
    ]
    assert best == max(alone) > min(alone)


def test_usage_counts_frames():
    usage = measures.measure_usage([runs(0, 0, 0, 1), runs(3, 3, 1, 1)], size=8)
    # of eight frames, units 0 and 1 have three each, and unit 3 has two
    bits = -(2 * 3 / 8 * np.log2(3 / 8) + 2 / 8 * np.log2(2 / 8))
    assert usage["usage_entropy_bits"] == pytest.approx(bits)
    assert usage["usage_entropy_share"] == pytest.approx(bits / np.log2(8))
    assert usage["unused_units"] == 5


def test_the_bit_rate_is_symbols_a_second_times_their_entropy():
    rates = measures.measure_bit_rate([runs(0, 0, 1, 0), runs(1, 1, 1, 1)])
    # the four runs 0 x 2, 1 x 1, 0 x 1 and 1 x 4 take two seconds
    assert rates["units_a_second"] == pytest.approx(2.0)
    # two units, equally often, have one bit; four different (unit, length) two
    assert rates["bits_a_second"] == pytest.approx(2.0 * 1)
    assert rates["bits_a_second_timed"] == pytest.approx(2.0 * 2)
    assert measures.measure_bit_rate([runs(5, 5, 5)])["bits_a_second"] == 0


# ---- alignments, as aligners write them

# the phones of SHORT, a TextGrid
PHONES = [(SILENCE, 0.0, 0.25), ("AH0", 0.25, 0.5), ("s", 0.5, 0.75)]


def test_a_folder_is_read_by_the_paths_in_it(tmp_path):
    (tmp_path / "s1").mkdir()
    for name in ("x.TextGrid", "s1/y.textgrid"):
        (tmp_path / name).write_text(SHORT)
    (tmp_path / "notes.txt").write_text("no alignment")
    assert read_alignment(tmp_path) == {"s1/y": PHONES, "x": PHONES}


def test_jsonl_is_read_gaps_are_silence_and_small_overlaps_are_clipped(tmp_path):
    sil = SILENCE
    written = {
        1: [["a", 0.1, 0.2], ["b", 0.4, 0.5]],
        "x": [["", 0, 0.5]],
        "pauses": [["a", 0, 0.2], ["_", 0.2, 0.3], ["b", 0.5, 0.6]],
        # c has no length
        "overlap": [["a", 0, 0.2], ["b", 0.19, 0.3], ["c", 0.3, 0.3], ["d", 0.3, 0.4]],
    }
    records = [{"id": i, "phones": phones, "more": 1} for i, phones in written.items()]
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
        ("a.jsonl", '{"id": "x", "phones": []}\n{"id": "x", "phones": []}'),
        ("a.jsonl", '{"id": "x", "phones": [["a", 0, 1], ["b", 0.5, 2]]}'),
        ("a.TextGrid", "no grid"),
        ("a.TextGrid", SHORT.replace("phones", "words")),
        ("a.TextGrid", SHORT.replace('"IntervalTier"\n"phones"', '"TextTier"\n"phones"')),
        ("a.txt", "no alignment"),
    ],
)
def test_a_bad_alignment_is_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    refused(name.removesuffix(".txt"), read_alignment, tmp_path / name)


# ---- the same text by several speakers


def make_words(rng, repetitions=2, speaker_units=0):
    """Make the units of recordings of six texts by four speakers, each `repetitions` times: first
    `speaker_units` units that the speaker alone has, then 12 of the text, then one at random.
    Returns their units, texts and speakers."""
    units_of_text = [rng.integers(10, 40, 12) for _ in range(6)]
    units, texts, speakers = [], [], []
    for text, speaker, _ in itertools.product(range(6), range(4), range(repetitions)):
        beginning = np.full(speaker_units, speaker)
        units.append(np.concatenate([beginning, units_of_text[text], rng.integers(10, 40, 1)]))
        texts.append(str(text))
        speakers.append(str(speaker))
    return units, texts, speakers


def test_same_text_is_measured_on_all_pairs_of_recordings_by_two_speakers():
    units, texts, speakers = make_words(np.random.default_rng(0))
    same, other = [], []
    for i, j in itertools.combinations(range(len(units)), 2):
        if speakers[i] != speakers[j]:
            distances = same if texts[i] == texts[j] else other
            distances.append(measures.measure_distance(units[i], units[j]))
    (row,) = measures.compare_texts(units, texts, speakers)
    assert row["same_text_distance"] == pytest.approx(np.mean(same))
    assert row["other_text_distance"] == pytest.approx(np.mean(other))
    auc = np.mean([(a < b) + (a == b) / 2 for a in same for b in other])
    assert row["same_text_auc"] == pytest.approx(auc)
    groups = ["machine" if speaker in "01" else "people" for speaker in speakers]
    rows = measures.compare_texts(units, texts, speakers, groups)
    # six texts: two recordings by each of two speakers; four by machines and four by people
    pairs = {"machine": 6 * 2 * 2, "machine - people": 6 * 4 * 4, "people": 6 * 2 * 2}
    assert {row["groups"]: row["pairs"] for row in rows} == pairs


@pytest.mark.parametrize(("texts", "speakers"), [("ab", "cc"), ("aa", "cd"), ("ab", "cd")])
def test_same_text_needs_two_texts_and_two_speakers_of_one(texts, speakers):
    units = [np.arange(3), np.arange(4)]
    with pytest.raises(ValueError, match="no text is spoken by two speakers"):
        measures.compare_texts(units, list(texts), list(speakers))


@pytest.mark.slow
def test_abx_tells_words_apart_within_and_across_speakers():
    rng = np.random.default_rng(1)
    assert max(measures.abx(*make_words(rng)).values()) < 0.01
    # A and B are by one speaker, so that units of the speaker do not decide
    assert max(measures.abx(*make_words(rng, speaker_units=40)).values()) < 0.01
    units, texts, speakers = make_words(rng, repetitions=1)
    assert math.isnan(measures.abx(units, texts, speakers)["abx_within"])
    random = [rng.integers(10, 40, 12) for _ in units]
    assert 0.3 < measures.abx(random, texts, speakers)["abx_across"] < 0.7


def test_the_probe_finds_speakers_where_units_tell_them():
    rng = np.random.default_rng(2)
    for speaker_units, bounds in ((0, (0, 0.6)), (4, (0.9, 1))):
        units, _, speakers = make_words(rng, speaker_units=speaker_units)
        runs_of_recordings = [RunLength.of_frames(u) for u in units]
        probe = measures.probe_speakers(runs_of_recordings, speakers, size=40)
        assert probe["speaker_chance"] == 0.25
        assert bounds[0] <= probe["speaker_accuracy"] <= bounds[1]


def test_unit_edit_distance_is_a_mean_over_recordings_of_any_lengths():
    first, second, third = runs(1, 1, 2, 3), runs(1, 2, 2, 2, 3, 4), runs(5, 5)
    assert measures.unit_edit_distance([first, second, third], [first, second, third]) == 0
    # one insertion in four units, and one deletion
    distance = measures.unit_edit_distance([first, second], [second, first])
    assert distance == pytest.approx(1 / 4)
    assert measures.unit_edit_distance([third], [first]) == 1


# ---- `speechssl units evaluate`


@pytest.fixture
def folder(tmp_path):
    """Return a folder of r0.flac to r2.flac; beside it is a codebook on their MFCCs."""
    from speechssl.audio import write_flac

    rng, root = np.random.default_rng(0), tmp_path / "audio"
    for i in range(3):
        tone = np.sin(np.arange(16_000 + 4_000 * i) ** 1.5 * 1e-3 * (i + 1))
        write_flac(root / f"r{i}.flac", 0.4 * tone + rng.normal(0, 0.02, len(tone)))
    fit_units(Fit(source=root, encoder="mfcc", out=tmp_path / "book.safetensors", clusters=6))
    return root


def evaluate(source, **options):
    """Measure the units of MFCCs by the codebook beside the source."""
    book = source.with_name("book.safetensors")
    return evaluate_units(Evaluate(source=source, encoder="mfcc", codebook=book, **options))


@pytest.mark.slow
def test_a_folder_is_measured_clean_and_distorted(folder, tmp_path):
    values = evaluate(folder, out=tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == values
    assert values["bits_a_second"] < values["bits_a_second_timed"]
    assert "pnmi" not in values  # it needs phones
    rows = values["stability"]
    assert {row["recordings"] for row in rows} == {3}
    assert [row["snr_db"] for row in rows[:4]] == [20, 10, 5, 0]
    assert rows[0]["unit_edit_distance"] < rows[3]["unit_edit_distance"] <= 1
    others = ["reverb", "pitch +2", "stretch 1.2", "mp3 16 kbps", "opus 8 kbps"]
    assert [row["condition"] for row in rows[4:]] == others
    lines = format_measures(values)
    assert any("unit edit distance (UED), pink 5 dB  0." in line for line in lines)


@pytest.mark.slow
def test_the_number_of_distorted_recordings_can_be_chosen(folder):
    (row,) = evaluate(folder, noisy=1, conditions=("pink@0",))["stability"]
    assert row["recordings"] == 1


@pytest.mark.slow
def test_a_list_is_measured_across_speakers_and_groups(folder, tmp_path):
    from speechssl.audio import read_audio, write_flac

    lines = ["audio,text,speaker,group"]
    for i, text in enumerate(("low", "high", "higher")):
        samples = read_audio(folder / f"r{i}.flac")
        for speaker, gain in (("ann", 1.0), ("bob", 0.5), ("eva", 0.25)):
            write_flac(folder / f"{speaker}-{i}.flac", gain * samples)
            group = "machine" if speaker == "eva" else "people"
            lines.append(f"audio/{speaker}-{i}.flac,{text},{speaker},{group}")
    path = tmp_path / "list.csv"
    path.write_text("\n".join(lines) + "\n")
    values = evaluate(path, conditions=(), violins=tmp_path / "v.svg")
    # a single machine has no pair of its own
    assert [row["groups"] for row in values["same_text"]] == ["machine - people", "people"]
    assert min(row["same_text_auc"] for row in values["same_text"]) > 0.9
    assert values["abx_across"] < 0.1
    assert (tmp_path / "v.svg").is_file()
    assert any("AUC (1 is best), machine - people" in line for line in format_measures(values))


def test_a_measure_that_is_not_a_number_is_explained():
    *_, last = format_measures({"pnmi": 0.5, "abx_within": math.nan})
    assert last.startswith("nan: ")
    assert not any(line.startswith("nan: ") for line in format_measures({"pnmi": 0.5}))


def test_an_alignment_gives_purity(folder, tmp_path, capsys):
    lines = [{"id": f"r{i}", "phones": [["a", 0, 0.4], ["b", 0.5, 0.9]]} for i in range(2)]
    write_lines(tmp_path / "a.jsonl", lines)
    pnmi = evaluate(folder, alignment=tmp_path / "a.jsonl", conditions=())["pnmi"]
    assert 0 < pnmi < 1
    assert "of 2 of 3 recordings" in capsys.readouterr().err
    (tmp_path / "b.jsonl").write_text(json.dumps(lines[0] | {"id": "other"}))
    refused("b.jsonl", evaluate, folder, alignment=tmp_path / "b.jsonl")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("line 2 of .*list.csv", "audio,text,speaker\na.wav,,c\n"),
        ("line 2 of .*list.csv", "audio,text,speaker\n../a.wav,b,c\n"),
        ("list.csv", "audio,text,speaker\naudio/r0.flac,b,c\naudio/r1.flac,d,c\n"),
        ("no text is spoken by two", "audio,text,speaker\naudio/r0.flac,b,c\naudio/r1.flac,d,e\n"),
        ("r0.flac", "audio,text,speaker\nr0.flac,b,c\nr1.flac,b,e\nr2.flac,d,e\n"),
    ],
)
def test_a_bad_list_is_named(folder, tmp_path, name, text):
    (tmp_path / "list.csv").write_text(text)
    refused(name, evaluate, tmp_path / "list.csv", conditions=())


def test_an_option_that_a_folder_does_not_allow_is_named(folder):
    refused("babble noise needs voices", evaluate, folder, conditions=("babble@5",))
    refused("--violins", evaluate, folder, violins=Path("v.svg"))
    refused("dev", evaluate, folder, split="dev")

"""Unit quality: the measures against brute force and scikit-learn; the table, with phones as the
topline and MFCC as the floor; the picture.
"""

import itertools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.timing import FrameGrid, RunLength, interval_of_units
from speechssl.units import picture
from speechssl.units.fit import fit_units
from speechssl.units.measures import (
    abx,
    bit_rate,
    normalised_distance,
    purity,
    same_text,
    speaker_probe,
    stability,
    unit_edit_distance,
    usage,
)
from speechssl.units.options import Evaluate, Fit
from speechssl.units.phones import SILENCE, phone_frames, read_alignment
from speechssl.units.picture import HOP, draw_units, log_mel, unit_blocks
from speechssl.units.quality import evaluate_units, format_measures, read_labelled

from ..files import change_lines, read_lines, refused
from ..test_metrics import edit_distance

GRID = FrameGrid(16_000, 320, 400)
sequences = st.lists(st.integers(0, 4), max_size=8).map(lambda x: np.array(x, np.int64))


# ---- the same text by two voices


@given(sequences, sequences)
def test_distance_is_edits_over_the_longer_length(a, b):
    longer = max(len(a), len(b))
    assert normalised_distance(a, b) == pytest.approx(
        edit_distance(list(a), list(b)) / longer if longer else 0
    )
    assert normalised_distance(a, b) == normalised_distance(b, a)
    assert normalised_distance(a, a) == 0


# ---- purity


def test_one_unit_for_all_says_nothing():
    phones = np.repeat([0, 1], [30, 10])
    found = purity([np.zeros(40, int)], [phones])
    assert (
        found["phone_purity"] == 0.75
        and found["cluster_purity"] == 1
        and found["pnmi"] == pytest.approx(0)
    )
    # units that are phones
    assert list(purity([phones * 7 + 3], [phones]).values()) == pytest.approx([1, 1, 1])
    # I = H(phone) - H(phone | unit)
    half = purity([np.array([4, 4, 4, 9, 9, 9])], [np.array([0, 0, 1, 1, 1, 1])])
    phone, given = (-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (1 / 3, 2 / 3))
    assert half == pytest.approx(
        {"phone_purity": 5 / 6, "cluster_purity": 5 / 6, "pnmi": 1 - given / 2 / phone}
    )
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
    assert (
        phone_frames([("sil", 0.0, 0.1), ("a", 0.1, 0.2)], GRID, 12, {}).tolist()
        == [0] * 5 + [1] * 5 + [0] * 2
    )
    assert phone_frames([], GRID, 2, {}).tolist() == [0, 0]


# ---- usage, bit rate, stability


def runs(*frames):
    return RunLength.of_frames(np.array(frames, np.int64))


def test_usage_counts_frames():
    used = usage([runs(0, 0, 0, 1), runs(3, 3, 1, 1)], 8)
    bits = -(2 * 0.375 * np.log2(0.375) + 0.25 * np.log2(0.25))
    assert used["usage_entropy_bits"] == pytest.approx(bits) and used[
        "usage_entropy_share"
    ] == pytest.approx(bits / 3)
    assert used["unused_units"] == 5
    assert used["most_used"] == [
        {"unit": 0, "share": 0.375},
        {"unit": 1, "share": 0.375},
        {"unit": 3, "share": 0.25},
    ]
    assert usage([runs(*range(8))], 8)["usage_entropy_share"] == pytest.approx(1)
    assert (
        usage([runs(0)], 1)["usage_entropy_share"] == 1
        and usage([runs(2, 2)], 4)["usage_entropy_bits"] == 0
    )


def test_the_bit_rate_is_symbols_a_second_times_their_entropy():
    found = bit_rate([runs(0, 0, 1, 0), runs(1, 1, 1, 1)], 2.0)  # 0 x2, 1, 0 | 1 x4
    # two units, equally often; four different (unit, length)
    assert found == pytest.approx(
        {"units_a_second": 2.0, "bits_a_second": 4 / 2 * 1.0, "bits_a_second_timed": 4 / 2 * 2.0}
    )
    assert bit_rate([runs(5, 5, 5)], 1.0)["bits_a_second"] == 0


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=5),
    st.integers(0, 99),
)
def test_stability_is_edits_over_clean_units(clean, seed):
    rng = np.random.default_rng(seed)
    noisy = [np.where(rng.random(len(x)) < 0.4, rng.integers(0, 5, len(x)), x) for x in clean]
    found = stability([runs(*x) for x in clean], [runs(*x) for x in noisy])
    pairs = [
        (runs(*a).units.tolist(), runs(*b).units.tolist())
        for a, b in zip(clean, noisy, strict=True)
    ]
    assert found["unit_error_rate"] == pytest.approx(
        sum(edit_distance(b, a) for a, b in pairs) / sum(len(a) for a, _ in pairs)
    )
    assert found["frames_changed"] == pytest.approx(
        np.mean(np.concatenate(clean) != np.concatenate(noisy))
    )


# ---- alignments as aligners write them: TextGrids long and short, JSONL; gaps, names, and what is
# wrong with a file


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
            xmin = 0.5
            xmax = 0.75
            text = "s"
"""
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
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_both_formats_of_a_textgrid_are_read(tmp_path, text, encoding):
    path = tmp_path / "a.TextGrid"
    path.write_bytes(text.replace("\n", "\r\n").encode(encoding))
    assert read_alignment(path) == {"a": PHONES}


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (SHORT, 'ooTextFile"\nObject class = ', 'ooTextFile short"\n'),  # P2FA, old Praat
        (SHORT, "\n3\n0\n", "\n2\n0\n"),
        (LONG, "intervals: size = 3", "intervals: size = 1"),
        (LONG, "size = 3\nitem", "size = 2\nitem"),
        (SHORT, '"whatever"', '"whatever" ! the 3 "phones" of p1'),
        (LONG, '"3 ""quoted"" [9] = 7"', '"IntervalTier"'),
    ],
)
def test_a_textgrid_is_read_as_far_as_it_goes_whatever_it_counts(tmp_path, text, old, new):
    assert old in text
    (tmp_path / "a.TextGrid").write_text(text.replace(old, new))
    assert read_alignment(tmp_path / "a.TextGrid") == {"a": PHONES}


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
            # c has no length
            "overlap": [["a", 0, 0.2], ["b", 0.19, 0.3], ["c", 0.3, 0.3], ["d", 0.3, 0.4]],
        },
    )
    (tmp_path / "a.jsonl").write_text(
        "\n".join(json.dumps({"id": i, "phones": p, "more": 1}) for i, p in given.items())
    )
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
    assert "set aside bad: " in err
    assert "phones must be in order" in err
    assert "2 recordings set aside" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "x"}', "a.jsonl:1: the record has no `phones`"),
        ('{"id": "x", "phones": [["a", "b", 1]]}', r"a.jsonl:1: `phones\[0\]\[1\]`"),
        ('{"id": "x", "phones": [["a", 1, 1]]}', "a.jsonl: of x there are no phones"),
        ('{"id": "x", "phones": [["a", 0, 1], ["b", 0.5, 2]]}', "phones must be in order"),
        ('{"id": "x", "phones": [["a", 1, 0.5]]}', "phones must be in order"),
        ("{", "is not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(line)
    refused(message, read_alignment, tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no grid", "cannot read .*a.TextGrid as a TextGrid"),
        (SHORT[: SHORT.index("0.5\n0.75")], "its tier whatever counts 3 and 2 follow"),
        (LONG[: LONG.index("    item [3]")], "it counts 3 tiers and 2 follow"),
        (LONG.replace("NAME - phones", "lines"), "has the interval tiers words, lines; name one"),
        (LONG.replace('"words"', '"NAME - phones"'), "has the interval tiers NAME - phones, NAME"),
    ],
)
def test_a_bad_textgrid_is_named(tmp_path, content, message):
    (tmp_path / "a.TextGrid").write_text(content)
    refused(message, read_alignment, tmp_path / "a.TextGrid")


def test_a_folder_without_alignments_is_named(tmp_path):
    refused("contains no alignment", read_alignment, tmp_path)


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
    rows = {row["groups"]: row for row in same_text(units, texts, speakers, groups)}
    assert list(rows) == ["machine", "machine - people", "people"]
    assert rows["machine"]["pairs"] == 6 * 2 * 2 and rows["machine - people"]["pairs"] == 6 * 4 * 4
    same, other = [], []
    for i, j in itertools.combinations(range(len(units)), 2):
        if speakers[i] != speakers[j]:
            (same if texts[i] == texts[j] else other).append(
                normalised_distance(units[i], units[j])
            )
    every = same_text(units, texts, speakers)[0]
    assert every["same_text_distance"] == pytest.approx(np.mean(same))
    assert every["other_text_distance"] == pytest.approx(np.mean(other))
    auc = np.mean([(a < b) + (a == b) / 2 for a in same for b in other])
    assert every["same_text_auc"] == pytest.approx(auc)
    for texts, speakers, reason in (
        ("ab", "cc", "all recordings have the speaker c"),
        ("aa", "cd", "all recordings have the text a"),
        ("ab", "cd", "no text is spoken by two speakers"),
    ):
        with pytest.raises(ValueError, match=reason):
            same_text(units[:2], list(texts), list(speakers))


@pytest.mark.slow
def test_abx_tells_words_apart_within_and_across_speakers():
    rng = np.random.default_rng(1)
    assert max(abx(*words(rng)).values()) < 0.01
    # the speaker's units outweigh the word's: those of one speaker differ by the word all the same
    hidden = abx(*words(rng, own=40))
    assert hidden["abx_within"] < 0.01 and hidden["abx_across"] < 0.01
    units, texts, speakers = words(rng, tokens=1)
    assert math.isnan(abx(units, texts, speakers)["abx_within"])
    random = [rng.integers(10, 40, 12) for _ in units]
    assert 0.3 < abx(random, texts, speakers)["abx_across"] < 0.7


def test_the_probe_finds_speakers_where_units_tell_them():
    rng = np.random.default_rng(2)
    found = [
        speaker_probe([RunLength.of_frames(u) for u in words(rng, own=own)[0]], words(rng)[2], 40)
        for own in (0, 4)
    ]
    assert (
        found[0]["speaker_accuracy"] < 0.6 < 0.9 < found[1]["speaker_accuracy"]
        and found[0]["speaker_chance"] == 0.25
    )
    assert math.isnan(
        speaker_probe([RunLength.of_frames(np.arange(3))] * 3, ["a", "a", "b"], 5)[
            "speaker_accuracy"
        ]
    )


def test_unit_edit_distance_is_a_mean_over_recordings_of_any_lengths():
    runs = [RunLength.of_frames(np.array(x)) for x in ([1, 1, 2, 3], [1, 2, 2, 2, 3, 4], [5, 5])]
    assert unit_edit_distance(runs, runs) == 0
    assert unit_edit_distance(runs[:2], [runs[1], runs[0]]) == pytest.approx(1 / 4)
    assert unit_edit_distance(runs[2:], runs[:1]) == 1
    with pytest.raises(ValueError, match="no recordings"):
        unit_edit_distance([], [])


# ---- the table

DEV = {"split": "dev", "same_text": 4, "conditions": ("pink@10",)}
FIT = {"layer": 1, "clusters": 8, "smooth": 3, "recordings": 1}


def fit(source, encoder, out, **options):
    fit_units(Fit(source=source, encoder=encoder, out=out, **options))


def evaluate(source, encoder, codebook, **options):
    return evaluate_units(Evaluate(source=source, encoder=encoder, codebook=codebook, **options))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    pytest.importorskip("espeakng_loader")
    from speechssl.synth.minisqa import prepare_minisqa
    from speechssl.synth.options import MiniSqa

    root = tmp_path_factory.mktemp("minisqa") / "corpus"
    prepare_minisqa(MiniSqa(out=root, passages=1, dev_passages=2, test_passages=0, workers=1))
    return root


@pytest.mark.slow
def test_phones_are_alike_for_two_voices_and_mfcc_units_are_not(corpus, tmp_path):
    phones = evaluate(corpus, "phones", None, **DEV, out=tmp_path / "phones.json")
    assert phones["same_text_distance"] < 0.1 and phones["same_text_auc"] == 1
    assert json.loads((tmp_path / "phones.json").read_text()) == phones
    fit(corpus, "mfcc", tmp_path / "book.safetensors", clusters=20)
    floor = evaluate(corpus, "mfcc", tmp_path / "book.safetensors", **DEV)
    assert floor["K"] == 20 and floor["same_text_distance"] > 0.4
    assert 0 < floor["pnmi"] < 1 and floor["units_a_second"] > floor["phones_a_second"]


def test_what_quality_cannot_be_measured_on_is_one_sentence(corpus, tmp_path):
    one, other = {"split": "dev", "same_text": 1}, {"split": "test", "same_text": 2}
    refused("give --same-text 2 or more", evaluate, corpus, "phones", None, **one)
    refused("no recording in its split test", evaluate, corpus, "phones", None, **other)
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy)
    change_lines(
        copy / "dev/passages.jsonl",
        lambda record: {k: v for k, v in record.items() if k != "phones"},
    )
    refused("passages without phones", evaluate, copy, "phones", None, **DEV)


@pytest.mark.slow
def test_a_bad_passage_is_set_aside(corpus, hubert_folder, tmp_path, capsys):
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy)
    folder = str(hubert_folder("layer"))
    fit(copy, folder, tmp_path / "units.safetensors", **FIT)
    audio = sorted((copy / "dev").rglob("*.flac"))
    passages = read_lines(copy / "dev/passages.jsonl")
    (copy / passages[0]["audio"]).write_bytes(b"no audio")
    assert audio and evaluate(copy, folder, tmp_path / "units.safetensors", **DEV)["K"] == 8
    assert f"set aside {passages[0]['id']}" in capsys.readouterr().err
    (copy / passages[1]["audio"]).write_bytes(b"no audio")
    refused(
        "corpus can be read .of the first of 2",
        evaluate,
        copy,
        folder,
        tmp_path / "units.safetensors",
        **DEV,
    )


# ---- any audio


@pytest.fixture
def folder(tmp_path):
    """Three recordings and a codebook on MFCCs."""
    from speechssl.audio import write_flac

    rng, root = np.random.default_rng(0), tmp_path / "audio"
    for i in range(3):
        tone = np.sin(np.arange(16_000 + 4_000 * i) ** 1.5 * 1e-3 * (i + 1))
        write_flac(root / f"r{i}.flac", 0.4 * tone + rng.normal(0, 0.02, len(tone)))
    fit(root, "mfcc", tmp_path / "book.safetensors", clusters=6)
    return root


def measured(source, **options):
    """The quality of the units of MFCCs, by the codebook beside the source."""
    return evaluate(source, "mfcc", source.with_name("book.safetensors"), **options)


@pytest.mark.slow
def test_a_folder_is_inspected(folder, tmp_path, capsys):
    found = measured(folder, out=tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == found
    assert (
        (found["K"], found["precision"]) == (6, "fp32")
        and found["unused_units"] == 0
        and 0 < found["usage_entropy_share"] <= 1
    )
    assert (
        found["bits_a_second"] < found["bits_a_second_timed"]
        and "same_text_distance" not in found
        and "pnmi" not in found
    )
    rows = found["stability"]
    assert [r["snr_db"] for r in rows[:4]] == [20, 10, 5, 0] and {
        r["recordings"] for r in rows
    } == {3}
    assert rows[0]["frames_changed"] < rows[3]["frames_changed"] <= 1
    others = ["reverb", "pitch +2", "mp3 16 kbps", "opus 8 kbps", "stretch 1.2"]
    assert [r["condition"] for r in rows[4:]] == others and all(
        0 <= r["unit_edit_distance"] <= 1 for r in rows
    )
    # there are fewer of them
    assert "frames_changed" not in rows[-1] and rows[-1]["unit_edit_distance"] > 0.05
    assert (
        "3 of 3 recordings have no --alignment and are left out of purity"
    ) in capsys.readouterr().err
    printed = format_measures(found)
    assert any("unit error rate, pink 5 dB  0." in line for line in printed) and printed[
        0
    ].split() == ["K", "6"]
    assert measured(folder, first=1, conditions=("pink@0",))["stability"][0]["recordings"] == 1


def test_two_formats_of_a_recording_are_two_lines_of_a_list(tmp_path):
    (tmp_path / "list.csv").write_text(
        "audio,text,speaker\nd/a.wav,one,x\nd/a.mp3,one,y\nd/b.wav,two,x\n"
    )
    assert list(read_labelled(tmp_path / "list.csv")) == ["d/a.wav", "d/a.mp3", "d/b"]


@pytest.mark.slow
def test_a_list_is_measured_across_speakers_and_groups(folder, tmp_path):
    from speechssl.audio import read_audio, write_flac

    lines_of = ["audio,text,speaker,group"]
    for i, text in enumerate(("low", "high", "higher")):
        samples = read_audio(folder / f"r{i}.flac")
        for speaker, gain in (("ann", 1.0), ("bob", 0.5), ("eva", 0.25)):
            write_flac(folder / f"{speaker}-{i}.flac", gain * samples)
            lines_of.append(
                f"audio/{speaker}-{i}.flac,{text},{speaker},{'people' if speaker != 'eva' else 'machine'}"
            )
    listed = tmp_path / "list.csv"
    listed.write_text("\n".join(lines_of) + "\n")
    found = measured(listed, conditions=(), violins=tmp_path / "v.svg")
    assert [row["groups"] for row in found["same_text"]] == ["machine - people", "people"]
    assert (
        all(row["same_text_auc"] > 0.9 for row in found["same_text"]) and found["abx_across"] < 0.1
    )
    assert "the same text" in (tmp_path / "v.svg").read_text()
    assert (
        any("AUC, machine - people" in line for line in format_measures(found))
        and "stability" not in found
    )


def test_a_csv_of_recordings_alone_is_a_manifest(folder, tmp_path):
    (tmp_path / "list.csv").write_text("id;audio\none;audio/r0.flac\ntwo;audio/r1.flac\n")
    found = measured(tmp_path / "list.csv", conditions=())
    assert found["K"] == 6 and "same_text" not in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("audio,text\na.wav,b\n", "line 2 of .*list.csv has no speaker"),
        ("audio,text,speaker\na.wav,,c\n", "line 2 of .* has no text"),
        ("audio,text,speaker\na.wav,b,c\na.wav,b,c\n", "line 3 of .* has a.wav again"),
        ("audio,text,speaker\naudio/r0.flac,b,c\naudio/r1.flac,d,c\n", "have the speaker c"),
        ("audio,text,speaker\naudio/r0.flac,b,c\naudio/r1.flac,d,e\n", "by two speakers, who"),
        ("audio,text,speaker\na.wav,b, d,c\n", "row 1 has 4 cells and the header 3"),
        ("audio,text,speaker\n../a.wav,b,c\n", "line 2 of .* names ../a.wav, which leads out of"),
        (
            "audio,text,speaker\nr0.flac,b,c\nr1.flac,d,e\n",
            "no recording of .*list.csv can be read",
        ),
    ],
)
def test_a_bad_list_is_one_sentence(folder, tmp_path, text, message):
    (tmp_path / "list.csv").write_text(text)
    refused(message, measured, tmp_path / "list.csv", conditions=())


def test_figures_do_not_depend_on_threads(folder, hubert_folder, tmp_path, set_threads):
    name, book, found = str(hubert_folder("group")), tmp_path / "hubert.safetensors", []
    fit(folder, name, book, **FIT)
    for threads in (1, 2):
        set_threads(threads)
        found.append(evaluate(folder, name, book, conditions=("pink@10",)))
        assert torch.get_num_threads() == threads
    assert found[0] == found[1]


def test_noise_is_decided_by_the_seed(folder):
    def rows(condition="pink@5", **options):
        return measured(folder, conditions=(condition,), **options)["stability"]

    assert rows() == rows() != rows(seed=1) and rows("gaussian@5") != rows()
    assert rows(noisy=1)[0]["recordings"] == 1


def test_an_alignment_gives_purity(folder, tmp_path, capsys):
    lines = [{"id": f"r{i}", "phones": [["a", 0, 0.4], ["b", 0.5, 0.9]]} for i in range(2)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = measured(folder, alignment=tmp_path / "a.jsonl", conditions=())
    assert 0 < found["pnmi"] < 1 and 0 < found["cluster_purity"] <= 1 and "stability" not in found
    assert "1 of 3 recordings have no --alignment" in capsys.readouterr().err
    (tmp_path / "b.jsonl").write_text(json.dumps(lines[0] | {"id": "other"}))
    refused(
        "b.jsonl has no recording of .*its first id is other",
        measured,
        folder,
        alignment=tmp_path / "b.jsonl",
    )


def test_phones_a_second_are_those_of_the_measured_recordings_that_have_phones(
    mini_corpus, tmp_path
):
    root = mini_corpus((16_000, 32_000, 48_000))
    phones = {"p0": [["a", 0, 0.5], ["b", 0.5, 1.0]], "p1": [["a", 0, 1.0], ["b", 1.0, 2.0]]}
    change_lines(
        root / "train/passages.jsonl",
        lambda record: record | {"phones": phones.get(record["id"], [])},
    )
    fit(root, "mfcc", tmp_path / "book.safetensors", clusters=6)
    for first, expected in ((None, 4 / 3), (1, 2.0)):
        found = measured(root, split="train", first=first, conditions=())
        assert found["phones_a_second"] == pytest.approx(expected)


def test_a_picture_is_drawn(folder, tmp_path):
    measured(folder, conditions=(), picture=tmp_path / "units.svg", recording="r1")
    assert "r1 " in (tmp_path / "units.svg").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conditions": ("babble@5",)}, "needs the speech of other people"),
        ({"conditions": ("nothing.wav@5",)}, "no recordings in nothing.wav"),
        (
            {"conditions": ("stretch@x",)},
            "stretch@x is no time-stretch; write one like stretch@1.2",
        ),
        ({"conditions": ("codec@aac:8",)}, "aac"),
        (
            {"violins": Path("v.svg")},
            "give a .csv or .tsv with the columns audio, text and speaker",
        ),
        ({"same_text": 4}, "is not a MiniSQA corpus"),
        ({"split": "dev"}, "is not a prepared corpus and has no split dev"),
        ({"precision": "bf16"}, "mfcc is computed in fp32, not in bf16"),
        ({"first": 1, "picture": Path("a.png"), "recording": "r1"}, "has no recording r1"),
        ({"picture": Path("units.txt")}, "cannot draw a picture as units.txt"),
    ],
)
def test_what_cannot_be_measured_here_is_one_sentence(folder, options, message):
    refused(message, measured, folder, **options)


def test_phones_need_a_corpus_and_units_a_codebook(folder):
    refused("need a prepared corpus", evaluate, folder, "phones", None)
    refused("need a codebook", evaluate, folder, "mfcc", None)


# ---- the picture


RUNS = RunLength(np.array([7, 3, 7]), np.array([10, 30, 59]))  # 99 frames: 31,760 samples
SAMPLES = np.random.default_rng(0).uniform(-0.5, 0.5, 31_760 + 100).astype(np.float32)


def test_units_stand_over_the_samples_they_own():
    blocks = list(unit_blocks(RUNS, GRID))
    assert [b[0] for b in blocks] == ["7", "3", "7"]
    assert blocks[0][3] == blocks[2][3] != blocks[1][3]
    assert [b[1:3] for b in blocks] == [interval_of_units(GRID, RUNS, i, i) for i in range(3)]
    assert list(unit_blocks(RUNS, GRID, (0.3, 0.5))) == blocks[1:2]


def test_a_column_of_the_spectrogram_is_centred_on_its_sample():
    click = np.zeros(16_000, np.float32)
    click[8_000] = 1
    loudest = log_mel(click).sum(0).argmax()
    assert abs(int(loudest) * HOP - 8_000) <= HOP / 2


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_picture_is_written(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    draw_units(path, SAMPLES, RUNS, GRID, [("sil", 0.0, 0.5), ("AH0", 0.5, 1.99)], "title")
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")


@pytest.mark.parametrize("span", [None, (3.0, 4.0), (1.5, 1.0), (0.0, float("nan"))])
def test_what_cannot_be_drawn_is_one_sentence(tmp_path, monkeypatch, span):
    monkeypatch.setattr(picture, "ROWS", 0.5)
    arguments = (tmp_path / "a.png", SAMPLES, RUNS, GRID)
    refused("cannot be drawn; name at most 1.5 s", draw_units, *arguments, span=span)
    assert not list(tmp_path.iterdir())

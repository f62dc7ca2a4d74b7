"""The table of unit quality: phones as the topline, MFCC as the floor, and the message for an encoder without a codebook."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from speechssl.cli import main
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.timing import FrameGrid, RunLength, interval_of_units
from speechssl.units import evaluate as picture
from speechssl.units.evaluate import EvaluateOptions, colour, draw_units, evaluate_units, lines, log_mel, unit_blocks
from speechssl.units.fit import FitOptions, fit_units

from ..files import change_lines, read_lines, write_lines

DEV = EvaluateOptions("dev", pairs=4, conditions=("pink@10",))
FIT = FitOptions(layer=1, clusters=8, smooth=3, recordings=1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    pytest.importorskip("espeakng_loader")
    from speechssl.synth.minisqa import Settings, prepare

    root = tmp_path_factory.mktemp("minisqa") / "corpus"
    prepare(root, Settings("en", {"train": 1, "dev": 2, "test": 0}, seed=0))
    return root


@pytest.mark.slow
def test_phones_are_alike_for_two_voices_and_mfcc_units_are_not(corpus, tmp_path):
    phones = evaluate_units(corpus, "phones", None, DEV, tmp_path / "phones.json")
    assert phones["same_text_distance"] < 0.1 and phones["same_text_auc"] == 1
    assert json.loads((tmp_path / "phones.json").read_text()) == phones
    fit_units(corpus, "mfcc", tmp_path / "book.safetensors", FitOptions(clusters=20))
    floor = evaluate_units(corpus, "mfcc", tmp_path / "book.safetensors", DEV)
    assert floor["K"] == 20 and floor["same_text_distance"] > 0.4
    assert 0 < floor["pnmi"] < 1 and floor["units_a_second"] > floor["phones_a_second"]


def test_what_quality_cannot_be_measured_on_is_one_sentence(corpus, tmp_path):
    with pytest.raises(InputError, match="give --same-text 2 or more"):
        evaluate_units(corpus, "phones", None, EvaluateOptions("dev", pairs=1))
    with pytest.raises(InputError, match="test has no passages"):
        evaluate_units(corpus, "phones", None, EvaluateOptions("test", pairs=2))
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy)
    change_lines(copy / "dev/passages.jsonl", lambda record: {k: v for k, v in record.items() if k != "phones"})
    with pytest.raises(InputError, match="passages without phones"):
        evaluate_units(copy, "phones", None, DEV)


@pytest.mark.slow
def test_a_bad_passage_is_set_aside(corpus, hubert_folder, tmp_path, capsys):
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy)
    folder = str(hubert_folder("layer"))
    fit_units(copy, folder, tmp_path / "units.safetensors", FIT)
    audio = sorted((copy / "dev").rglob("*.flac"))
    passages = read_lines(copy / "dev/passages.jsonl")
    (copy / passages[0]["audio"]).write_bytes(b"no audio")
    assert audio and evaluate_units(copy, folder, tmp_path / "units.safetensors", DEV)["K"] == 8
    assert f"set aside {passages[0]['id']}" in capsys.readouterr().err
    (copy / passages[1]["audio"]).write_bytes(b"no audio")
    with pytest.raises(InputError, match="no recording of 2 can be read"):
        evaluate_units(copy, folder, tmp_path / "units.safetensors", DEV)


def test_gaps_of_a_corpus_are_silence_and_bad_phones_are_left_out(corpus, tmp_path, capsys):
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy)
    fit_units(copy, "mfcc", tmp_path / "book.safetensors", FitOptions(clusters=6))
    manifest = copy / "dev/passages.jsonl"
    records = read_lines(manifest)

    def pnmi():
        write_lines(manifest, records)
        return evaluate_units(copy, "mfcc", tmp_path / "book.safetensors", EvaluateOptions("dev", pairs=0, conditions=()))["pnmi"]

    whole = pnmi()
    records[0]["phones"] = records[0]["phones"][:3]
    assert pnmi() != whole
    records[0]["phones"] = records[0]["phones"][::-1]
    assert pnmi() != whole
    assert f"set aside {records[0]['id']}: " in capsys.readouterr().err


@pytest.mark.slow
def test_an_encoder_is_inspected_in_another_precision(corpus, hubert_folder, tmp_path):
    folder, book = str(hubert_folder("layer")), tmp_path / "units.safetensors"
    fit_units(corpus, folder, book, FIT)
    found = [evaluate_units(corpus, folder, book, replace(DEV, pairs=0, precision=p)) for p in (None, "fp32", "int8")]
    assert found[0] == found[1] != found[2] and found[0]["K"] == 8
    assert [one["precision"] for one in found] == ["fp32", "fp32", "int8"]
    assert load_encoder(folder).hash in (tmp_path / "units.card.json").read_text()
    with pytest.raises(InputError, match="there is no device tpu9"):
        evaluate_units(corpus, folder, book, replace(DEV, device="tpu9"))


# ---- any audio


@pytest.fixture
def folder(tmp_path):
    """Three recordings and a codebook on MFCCs."""
    from speechssl.audio import write_flac

    rng, root = np.random.default_rng(0), tmp_path / "audio"
    for i in range(3):
        tone = np.sin(np.arange(16_000 + 4_000 * i) ** 1.5 * 1e-3 * (i + 1))
        write_flac(root / f"r{i}.flac", 0.4 * tone + rng.normal(0, 0.02, len(tone)))
    fit_units(root, "mfcc", tmp_path / "book.safetensors", FitOptions(clusters=6))
    return root


@pytest.mark.slow
def test_a_folder_is_inspected(folder, tmp_path, capsys):
    found = evaluate_units(folder, "mfcc", tmp_path / "book.safetensors", EvaluateOptions(), tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == found
    assert (found["K"], found["precision"]) == (6, "fp32") and found["unused_units"] == 0 and 0 < found["usage_entropy_share"] <= 1
    assert found["bits_a_second"] < found["bits_a_second_timed"] and "same_text_distance" not in found and "pnmi" not in found
    rows = found["stability"]
    assert [r["snr_db"] for r in rows[:4]] == [20, 10, 5, 0] and {r["recordings"] for r in rows} == {3}
    assert rows[0]["frames_changed"] < rows[3]["frames_changed"] <= 1
    others = ["reverb", "pitch +2", "mp3 16 kbps", "opus 8 kbps", "stretch 1.2"]
    assert [r["condition"] for r in rows[4:]] == others and all(0 <= r["unit_edit_distance"] <= 1 for r in rows)
    assert "frames_changed" not in rows[-1] and rows[-1]["unit_edit_distance"] > 0.05  # there are fewer of them
    assert "3 of 3 recordings have no phones and are left out of purity" in capsys.readouterr().err
    printed = lines(found)
    assert any("unit error rate, pink 5 dB  0." in line for line in printed) and printed[0].split() == ["K", "6"]
    one = evaluate_units(folder, "mfcc", tmp_path / "book.safetensors", EvaluateOptions(first=1, conditions=("pink@0",)))
    assert one["stability"][0]["recordings"] == 1


@pytest.mark.slow
def test_a_list_is_measured_across_speakers_and_groups(folder, tmp_path):
    from speechssl.audio import read_audio, write_flac

    lines_of = ["audio,text,speaker,group"]
    for i, text in enumerate(("low", "high", "higher")):
        samples = read_audio(folder / f"r{i}.flac")
        for speaker, gain in (("ann", 1.0), ("bob", 0.5), ("eva", 0.25)):
            write_flac(folder / f"{speaker}-{i}.flac", gain * samples)
            lines_of.append(f"audio/{speaker}-{i}.flac,{text},{speaker},{'people' if speaker != 'eva' else 'machine'}")
    listed = tmp_path / "list.csv"
    listed.write_text("\n".join(lines_of) + "\n")
    options = EvaluateOptions(conditions=(), violins=tmp_path / "v.svg")
    found = evaluate_units(listed, "mfcc", tmp_path / "book.safetensors", options)
    assert [row["groups"] for row in found["same_text"]] == ["machine - people", "people"]
    assert all(row["same_text_auc"] > 0.9 for row in found["same_text"]) and found["abx_across"] < 0.1
    assert "the same text" in (tmp_path / "v.svg").read_text()
    assert any("AUC, machine - people" in line for line in lines(found)) and "stability" not in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("audio,text\na.wav,b\n", "has no column speaker; begin it with the line audio,text,speaker"),
        ("audio,text,speaker\na.wav,,c\n", "line 2 of .* lacks audio, text or speaker"),
        ("audio,text,speaker\na.wav,b,c\na.wav,b,c\n", "line 3 of .* has a.wav again"),
        ("audio,text,speaker\naudio/r0.flac,b,c\naudio/r1.flac,d,c\n", "all recordings have the speaker c; list several texts"),
        ("audio,text,speaker\naudio/r0.flac,b,c\naudio/r1.flac,b,d\n", "all recordings have the text b; list several texts"),
        ("audio,text,speaker\naudio/r0.flac,b,c\naudio/r1.flac,d,e\n", "no text is said by two speakers, who say another"),
        ("audio,text,speaker\n", "list.csv has no rows; give it a line audio,text,speaker"),
        ("audio,text,speaker\na.wav,b, d,c\n", "row 1 has 4 cells and the header 3"),
        ("audio,text,speaker\n../a.wav,b,c\n", "line 2 of .* names ../a.wav, which leads out of"),
        ("audio,text,speaker\nr0.flac,b,c\n", "no recording of 1 can be read"),
    ],
)
def test_a_bad_list_is_one_sentence(folder, tmp_path, text, message):
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        evaluate_units(tmp_path / "list.csv", "mfcc", tmp_path / "book.safetensors", EvaluateOptions(conditions=()))


def test_figures_do_not_depend_on_threads(folder, hubert_folder, tmp_path):
    name, book, before = str(hubert_folder("group")), tmp_path / "hubert.safetensors", torch.get_num_threads()
    fit_units(folder, name, book, FIT)
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(evaluate_units(folder, name, book, EvaluateOptions(conditions=("pink@10",))))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


def test_noise_is_decided_by_the_seed(folder, tmp_path):
    def rows(condition="pink@5", **options):
        options = EvaluateOptions(conditions=(condition,), **options)
        return evaluate_units(folder, "mfcc", tmp_path / "book.safetensors", options)["stability"]

    assert rows() == rows() != rows(seed=1) and rows("gaussian@5") != rows()
    assert rows(noisy=1)[0]["recordings"] == 1


def test_an_alignment_gives_purity(folder, tmp_path, capsys):
    lines = [{"id": f"r{i}", "phones": [["a", 0, 0.4], ["b", 0.5, 0.9]]} for i in range(2)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = EvaluateOptions(alignment=tmp_path / "a.jsonl", conditions=())
    found = evaluate_units(folder, "mfcc", tmp_path / "book.safetensors", options)
    assert 0 < found["pnmi"] < 1 and 0 < found["cluster_purity"] <= 1 and "stability" not in found
    assert "1 of 3 recordings have no phones" in capsys.readouterr().err
    (tmp_path / "b.jsonl").write_text(json.dumps(lines[0] | {"id": "other"}))
    with pytest.raises(InputError, match="b.jsonl has no recording of .*its first id is other"):
        evaluate_units(folder, "mfcc", tmp_path / "book.safetensors", EvaluateOptions(alignment=tmp_path / "b.jsonl"))


def test_phones_a_second_are_those_of_the_measured_recordings_that_have_phones(mini_corpus, tmp_path):
    root = mini_corpus((16_000, 32_000, 48_000))
    phones = {"p0": [["a", 0, 0.5], ["b", 0.5, 1.0]], "p1": [["a", 0, 1.0], ["b", 1.0, 2.0]]}
    change_lines(root / "train/passages.jsonl", lambda record: record | {"phones": phones.get(record["id"], [])})
    fit_units(root, "mfcc", tmp_path / "book.safetensors", FitOptions(clusters=6))
    for first, expected in ((None, 4 / 3), (1, 2.0)):
        options = EvaluateOptions("train", first=first, conditions=())
        found = evaluate_units(root, "mfcc", tmp_path / "book.safetensors", options)
        assert found["phones_a_second"] == pytest.approx(expected)


@pytest.mark.parametrize("verb", ["units evaluate a mfcc b", "text continue a b c --arm d"])
def test_the_first_so_many_and_so_many_at_random_have_two_names(verb, capsys):
    assert main([*verb.split(), "--recordings", "3"]) == 2
    assert "has no option --recordings; did you mean --first?" in capsys.readouterr().err


def test_a_picture_is_drawn(folder, tmp_path):
    book, path = tmp_path / "book.safetensors", tmp_path / "units.svg"
    evaluate_units(folder, "mfcc", book, EvaluateOptions(conditions=(), picture=path, recording="r1"))
    assert "r1 " in path.read_text()
    with pytest.raises(InputError, match="has no recording r7 .*its first is r0"):
        evaluate_units(folder, "mfcc", book, EvaluateOptions(picture=path, recording="r7"))
    with pytest.raises(InputError, match="cannot draw a picture as units.txt"):
        evaluate_units(folder, "mfcc", book, EvaluateOptions(picture=Path("units.txt")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conditions": ("babble@5",)}, "needs the speech of other people"),
        ({"conditions": ("nothing.wav@5",)}, "there is no noise nothing.wav"),
        ({"conditions": ("stretch@x",)}, "stretch@x is no time-stretch; write one like stretch@1.2"),
        ({"conditions": ("codec@aac:8",)}, "aac"),
        ({"violins": Path("v.svg")}, "give a .csv with the columns audio, text and speaker"),
        ({"pairs": 4}, "is not a MiniSQA corpus"),
        ({"split": "dev"}, "is not a prepared corpus and has no split dev"),
        ({"span": (0.0, 1.0)}, "need --picture; give the file"),
        ({"recording": "r0"}, "need --picture; give the file"),
        ({"precision": "int8"}, "mfcc is computed in fp32, not in int8"),
        ({"device": "cuda"}, "mfcc is computed on the CPU, not on cuda"),
        ({"first": 1, "picture": Path("a.png"), "recording": "r1"}, "has no recording r1"),
    ],
)
def test_what_cannot_be_measured_here_is_one_sentence(folder, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        evaluate_units(folder, "mfcc", tmp_path / "book.safetensors", EvaluateOptions(**options))
    with pytest.raises(InputError, match="need a prepared corpus"):
        evaluate_units(folder, "phones", None, EvaluateOptions())
    with pytest.raises(InputError, match="need a codebook"):
        evaluate_units(folder, "mfcc", None, EvaluateOptions())


@pytest.mark.slow
def test_without_voices_the_same_text_distance_is_left_out_unless_it_is_asked_for(corpus, tmp_path, monkeypatch, capsys):
    from speechssl.errors import MissingExtra

    def none(*_):
        raise MissingExtra("speech", "synth")
        yield

    fit_units(corpus, "mfcc", tmp_path / "book.safetensors", FitOptions(clusters=6))
    monkeypatch.setattr("speechssl.units.evaluate.speak_pairs", none)
    found = evaluate_units(corpus, "mfcc", tmp_path / "book.safetensors", EvaluateOptions("dev", conditions=()))
    assert "same_text_distance" not in found and found["pnmi"] > 0
    assert "the same-text distance is left out" in capsys.readouterr().err
    for options in (EvaluateOptions("dev", pairs=2), EvaluateOptions("dev")):
        with pytest.raises(MissingExtra):
            evaluate_units(corpus, "mfcc" if options.pairs else "phones", tmp_path / "book.safetensors", options)


# ---- the picture: everything at its time, to the frame grid, and only where there is something to show


GRID = FrameGrid(16_000, 320, 400)
RUNS = RunLength(np.array([7, 3, 7]), np.array([10, 30, 59]))  # 99 frames: 31,760 samples
SAMPLES = np.random.default_rng(0).uniform(-0.5, 0.5, 31_760 + 100).astype(np.float32)
PHONES = [("sil", 0.0, 0.5), ("AH0", 0.5, 1.99)]


def test_units_stand_over_the_samples_they_own():
    blocks = list(unit_blocks(RUNS, GRID))
    assert [b[0] for b in blocks] == ["7", "3", "7"] and blocks[0][3] == blocks[2][3] != blocks[1][3]
    assert [b[1:3] for b in blocks] == [interval_of_units(GRID, RUNS, i, i) for i in range(3)]
    assert list(unit_blocks(RUNS, GRID, (0.3, 0.5))) == blocks[1:2]
    assert list(unit_blocks(RUNS, GRID, (blocks[1][2], 9.0))) == blocks[2:]
    assert len({colour(i) for i in range(500)}) > 480 and all(len(colour(i)) == 7 for i in range(2_000))


def test_a_column_of_the_spectrogram_is_centred_on_its_sample():
    click = np.zeros(16_000, np.float32)
    click[8_000] = 1
    loudest = log_mel(click).sum(0).argmax()
    assert abs(int(loudest) * picture.HOP - 8_000) <= picture.HOP / 2


@pytest.mark.parametrize("piece", [2_000, 37])
@pytest.mark.parametrize(("first", "last"), [(0, 90), (100, 131), (350, 500), (398, None)])
def test_a_span_of_the_spectrogram_is_that_of_the_whole(monkeypatch, piece, first, last):
    from torchaudio.transforms import MelSpectrogram

    samples = SAMPLES * np.linspace(0.1, 2, len(SAMPLES), dtype=np.float32)  # the loudest is outside most spans
    power = MelSpectrogram(16_000, n_fft=1024, win_length=400, hop_length=80, n_mels=80, f_min=40.0)(torch.from_numpy(samples))
    whole = np.maximum(10 * np.log10(np.maximum(power, 1e-20) / power.max()), -70).numpy()
    monkeypatch.setattr(picture, "PIECE", piece)
    found = log_mel(samples, first, last)
    assert whole.shape == (80, 399) and np.allclose(found, whole[:, first:last], atol=1e-3)


def test_names_that_no_font_has_are_no_warning(tmp_path, recwarn):
    draw_units(tmp_path / "a.png", SAMPLES, RUNS, GRID, [("\u8bed", 0.0, 1.0)], "\u8bed\u97f3 \U000e0fff")
    assert not [w for w in recwarn if "Glyph" in str(w.message)] and (tmp_path / "a.png").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("phones", [[], PHONES])
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_picture_is_written(tmp_path, phones, suffix):
    path = tmp_path / f"a{suffix}"
    draw_units(path, SAMPLES, RUNS, GRID, phones, "some $title$")
    content = path.read_bytes()
    assert len(content) > 5_000 and content[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    if suffix == ".svg":
        text = content.decode()
        assert "some $title$" in text and ">7<" in text and ">3<" in text and (">AH0<" in text) == bool(phones)
        again = tmp_path / "again.svg"
        draw_units(again, SAMPLES, RUNS, GRID, phones, "some $title$")
        assert again.read_text() == text


@pytest.mark.slow
def test_a_long_recording_takes_rows_and_a_very_long_one_a_span(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "ROW_SECONDS", 0.5)
    rows, draw = [], picture._draw_row
    monkeypatch.setattr(picture, "_draw_row", lambda *a: rows.append(a[-1]) or draw(*a))
    draw_units(tmp_path / "a.png", SAMPLES, RUNS, GRID, PHONES, span=(0.25, 1.5))
    assert rows == [(0.25, 0.75), (0.75, 1.25), (1.25, 1.75)]
    draw_units(tmp_path / "a.png", SAMPLES, RUNS, GRID, PHONES, span=(0.5, 0.75))
    assert rows[3:] == [(0.5, 0.75)]
    monkeypatch.setattr(picture, "ROWS", 2)
    with pytest.raises(InputError, match="2.0 s are too long for a picture; name at most 1 s with --span"):
        draw_units(tmp_path / "b.png", SAMPLES, RUNS, GRID)
    for span in ((3.0, 4.0), (1.0, 1.0), (1.5, 1.0), (0.0, float("nan"))):
        with pytest.raises(InputError, match="is outside a recording of 1.99 s; change --span"):
            draw_units(tmp_path / "b.png", SAMPLES, RUNS, GRID, span=span)
    with pytest.raises(InputError, match=r"end its name in .png, .svg, .pdf"):
        draw_units(tmp_path / "a.bmp", SAMPLES, RUNS, GRID)
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]

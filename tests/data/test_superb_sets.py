"""Test the published sets of SUPERB: what is read of each, what is written, and what is refused. The
fixtures write miniatures in the published layouts, and set the published counts to theirs."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from speechssl.artifacts import read_json
from speechssl.audio import read_audio
from speechssl.data.audio_snips import ANNOTATIONS, VOICES, parse_slots, prepare_audio_snips
from speechssl.data.fluent_speech_commands import prepare_fluent_speech_commands
from speechssl.data.fsdd import prepare_fsdd
from speechssl.data.iemocap import COUNTS as IEMOCAP_COUNTS
from speechssl.data.iemocap import prepare_iemocap
from speechssl.data.libri2mix import FOLDERS, prepare_libri2mix, subsample
from speechssl.data.librispeech import PHONES, prepare_librispeech, read_lexicons
from speechssl.data.options import (
    AudioSnips,
    FluentSpeechCommands,
    Fsdd,
    Iemocap,
    Libri2Mix,
    LibriSpeech,
    Quesst14,
    SpeechCommands,
    VoiceBankDemand,
    VoxCeleb1,
)
from speechssl.data.quesst14 import prepare_quesst14
from speechssl.data.speech_commands import KEYWORDS, UNKNOWN, prepare_speech_commands
from speechssl.data.superb import (
    SILENCE,
    Slot,
    Turn,
    list_speakers,
    load_labelled,
    load_set,
    load_trials,
)
from speechssl.data.voicebank_demand import COUNTS as VOICEBANK_COUNTS
from speechssl.data.voicebank_demand import prepare_voicebank_demand
from speechssl.data.voxceleb1 import prepare_voxceleb1

from ..files import refused, untouched


def write_noise(path, seconds=0.1, rate=16_000):
    """Write a recording of noise, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(str(path)))
    soundfile.write(path, rng.uniform(-0.5, 0.5, round(seconds * rate)), rate)
    return path


def write_text_lines(path, *lines):
    """Write lines of text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# ---- what all sets share, tested on VoiceBank-DEMAND


@pytest.fixture
def voicebank(tmp_path, monkeypatch):
    """VoiceBank-DEMAND with five noisy recordings and their clean ones."""
    monkeypatch.setattr("speechssl.data.voicebank_demand.COUNTS", {"train": 2, "dev": 1, "test": 2})
    root = tmp_path / "vb"
    for kind in ("clean", "noisy"):
        for name in ("p226_001", "p227_001", "p230_001"):
            write_noise(root / f"{kind}_trainset_28spk_wav/{name}.wav", 0.25, 48_000)
        for name in ("p232_001", "p257_003"):
            write_noise(root / f"{kind}_testset_wav/{name}.wav")
    return root


def test_a_set_is_written_and_left_alone(voicebank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # the manifest has absolute paths, although the source is relative
    cards = prepare_voicebank_demand(VoiceBankDemand(source=Path("vb"), out=Path("out")))
    monkeypatch.chdir("/")
    card = cards["se"]
    o = VoiceBankDemand(source=voicebank, out=tmp_path / "out")
    assert read_json(tmp_path / "out/se/card.json") == card
    assert (card["task"], card["sizes"]) == ("se", {"train": 2, "dev": 1, "test": 2})
    data = load_set(tmp_path / "out/se", "se")
    for utterances in data.splits.values():
        assert all(data.path(u).is_file() for u in utterances)
    line = json.loads((tmp_path / "out/se/dev.jsonl").read_text())
    assert set(line) == {"id", "audio", "seconds", "speaker", "sources"}  # no field that is empty
    with untouched(tmp_path / "out"):
        assert prepare_voicebank_demand(o) == cards
    for name in ("card.json", "test.jsonl"):  # as after a kill
        (tmp_path / "out/se" / name).unlink()
    assert prepare_voicebank_demand(o) == cards
    assert len(load_set(tmp_path / "out/se").splits["test"]) == 2


def test_dev_has_two_speakers_and_utterances_name_their_clean_recordings(voicebank, tmp_path):
    train_and_dev = VOICEBANK_COUNTS["train"] + VOICEBANK_COUNTS["dev"]
    assert (train_and_dev, VOICEBANK_COUNTS["test"]) == (11_572, 824)
    for path in list(voicebank.glob("*/*.wav")):
        write_noise(voicebank / f"{path.parent.name}_16k/{path.name}")
    for kind in ("noisy", "clean"):
        write_noise(voicebank / f"{kind}_trainset_28spk_wav_16k/p287_004.wav")
    prepare_voicebank_demand(
        VoiceBankDemand(source=voicebank, out=tmp_path / "out", any_count=True)
    )
    splits = load_set(tmp_path / "out/se", "se").splits
    assert [u.id for u in splits["dev"]] == ["p226_001", "p287_004"]
    assert [u.id for u in splits["train"]] == ["p227_001", "p230_001"]
    utterance = splits["test"][0]
    assert Path(utterance.audio).parent.name == "noisy_testset_wav_16k"
    assert (utterance.speaker, utterance.seconds) == ("p232", 0.1)
    assert utterance.sources == (str(voicebank / "clean_testset_wav_16k/p232_001.wav"),)


# ---- LibriSpeech


@pytest.fixture
def librispeech(tmp_path, monkeypatch):
    """Two utterances of train, one of dev and one of test."""
    monkeypatch.setattr("speechssl.data.librispeech.COUNTS", {"train": 2, "dev": 1, "test": 1})
    texts = {
        "train-clean-100/103": ("GO ON", "IT'S A GO"),
        "dev-clean/84": ("A GO",),
        "test-clean/61": ("ON",),
    }
    for folder, lines in texts.items():
        chapter, speaker = tmp_path / f"LibriSpeech/{folder}/9", folder.partition("/")[2]
        numbered = [f"{speaker}-9-{i:04d} {line}" for i, line in enumerate(lines)]
        write_text_lines(chapter / f"{speaker}-9.trans.txt", *numbered)
        for i in range(len(lines)):
            write_noise(chapter / f"{speaker}-9-{i:04d}.flac", 0.1 + i)
    return tmp_path / "LibriSpeech"


@pytest.fixture
def lexicons(tmp_path):
    """Two lexicons: the second has a word that the first lacks."""
    write_text_lines(tmp_path / "lexicon.txt", "A\tAH0", "A  EY1", "GO\tG OW1", "ON\tAA1 N")
    write_text_lines(tmp_path / "more.txt", "IT'S IH1 T S", "GO G AA1")
    return [tmp_path / "lexicon.txt", tmp_path / "more.txt"]


def test_asr_has_texts_and_pr_their_phones(librispeech, lexicons, tmp_path):
    o = LibriSpeech(source=librispeech, out=tmp_path / "out", lexicon=lexicons)
    cards = prepare_librispeech(o)
    asr, pr = (load_set(tmp_path / "out" / task, task) for task in ("asr", "pr"))
    assert [u.text for u in asr.splits["train"]] == ["GO ON", "IT'S A GO"]
    # of "A" and "GO", which have two pronunciations, the first counts
    assert [u.phones for u in pr.splits["train"]] == ["G OW1 AA1 N", "IH1 T S AH0 G OW1"]
    assert [u.text for u in pr.splits["train"]] == ["", ""]
    second = asr.splits["train"][1]
    assert (second.id, second.speaker, second.seconds) == ("103-9-0001", "103", 1.1)
    assert asr.path(second).name == "103-9-0001.flac"
    assert cards["pr"]["sizes"] == {"train": 2, "dev": 1, "test": 1}
    assert "lexicons" not in cards["asr"]
    assert len(PHONES) == 71  # as in SUPERB
    assert read_lexicons(lexicons)["A"] == "AH0"


# ---- Speech Commands

# split -> a speaker: two are in the lists that come with the corpus (validation_list.txt,
# testing_list.txt), and one is in neither
SPEAKERS = {"dev": "026290a7", "test": "0c40e715", "train": "0a7c2a8d"}
NOISE = "speech_commands_v0.01/_background_noise_/pink_noise.wav"


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Two words by a speaker of every split, noise, and a test set with every class."""
    root = tmp_path / "sc"
    for word in ("yes", "bed"):
        for speaker in SPEAKERS.values():
            write_noise(root / f"speech_commands_v0.01/{word}/{speaker}_nohash_0.wav")
    write_noise(root / NOISE, 11.5)
    for name in (*KEYWORDS, UNKNOWN, SILENCE):
        write_noise(root / f"speech_commands_test_set_v0.01/{name}/{SPEAKERS['test']}_nohash_1.wav")
    counts = {"train": 2, "dev": 2, "test": 12, "background recordings": 1}
    monkeypatch.setattr("speechssl.data.speech_commands.COUNTS", counts)
    return root


def test_words_are_split_by_speaker_and_noise_is_cut_into_seconds(commands, tmp_path):
    samples, rate = soundfile.read(commands / NOISE)
    samples[32_000:48_000] = 0  # this second is digital silence, which is left out
    soundfile.write(commands / NOISE, samples, rate)
    card = prepare_speech_commands(SpeechCommands(source=commands, out=tmp_path / "out"))["ks"]
    assert card["sizes"] == {"train": 11, "dev": 3, "test": 12}
    data = load_set(tmp_path / "out/ks", "ks")
    words = {u.id: u.labels["keyword"] for u in data.splits["train"] if u.speaker}
    assert words == {"bed/0a7c2a8d_nohash_0": "_unknown_", "yes/0a7c2a8d_nohash_0": "yes"}
    words = {u.id for u in data.splits["dev"] if u.speaker}
    assert words == {"bed/026290a7_nohash_0", "yes/026290a7_nohash_0"}
    assert [u.id for u in data.splits["dev"] if not u.speaker] == ["_silence_/pink_noise-000"]
    clip = next(u for u in data.splits["train"] if u.id.endswith("noise-003"))
    cut = read_audio(data.path(clip))
    assert clip.labels == {"keyword": "_silence_"}
    assert clip.seconds == 1
    assert len(cut) == 16_000
    np.testing.assert_allclose(cut, samples[48_000:64_000], atol=1e-4)


# ---- the Free Spoken Digit Dataset


@pytest.fixture
def fsdd(tmp_path):
    """Two digits, spoken eleven times by each of two speakers."""
    rng = np.random.default_rng(0)
    (tmp_path / "fsdd/recordings").mkdir(parents=True)
    for name in (f"{digit}_{speaker}" for digit in (0, 7) for speaker in ("jackson", "theo")):
        for i in range(11):
            path = tmp_path / f"fsdd/recordings/{name}_{i}.wav"
            soundfile.write(path, rng.uniform(-0.5, 0.5, 2_001 + i), 8_000)
    return tmp_path / "fsdd"


def test_both_tasks_share_the_audio_and_the_customary_split(fsdd, tmp_path):
    first = prepare_fsdd(Fsdd(source=fsdd, out=tmp_path / "out"))
    ks, sid = (load_labelled(tmp_path / "out" / task) for task in ("ks", "sid"))
    assert ks.classes == {"keyword": ("seven", "zero")}
    assert sid.classes == {"speaker": ("jackson", "theo")}
    assert [len(ks.splits[s]) for s in ("train", "dev", "test")] == [4, 20, 20]
    assert {u.id[-1] for u in ks.splits["test"]} == set("01234")
    utterance = next(u for u in ks.splits["train"] if u.id == "7_theo_10")
    assert (utterance.labels, utterance.speaker) == ({"keyword": "seven"}, "theo")
    samples = read_audio(ks.path(utterance))
    assert len(samples) == 2 * 2_011  # from 8 to 16 kHz
    assert utterance.seconds == len(samples) / 16_000
    same = next(u for u in sid.splits["train"] if u.id == utterance.id)
    assert ks.path(utterance).samefile(sid.path(same))
    with untouched(tmp_path / "out"):  # the folder of the dataset and recordings/ give the same
        assert prepare_fsdd(Fsdd(source=fsdd / "recordings", out=tmp_path / "out")) == first


def test_two_digits_of_one_name_are_refused(fsdd, tmp_path, absent_out):
    shutil.copytree(fsdd / "recordings", fsdd / "copy")
    write_noise(fsdd / "copy/0_jackson_0.wav")
    refused("are both called 0_jackson_0", prepare_fsdd, Fsdd(source=fsdd, out=absent_out))


# ---- QUESST 2014


@pytest.fixture
def quesst14(tmp_path, monkeypatch):
    """Three documents and three queries, of which two and two are English."""
    monkeypatch.setattr("speechssl.data.quesst14.COUNTS", {"documents": 2, "dev": 1, "test": 1})
    root = tmp_path / "quesst"  # another name than the lists have
    lists = {
        ("utterances", "Audio"): ("00001 nnenglish", "00002 czech", "00003 nnenglish"),
        ("dev", "dev_queries"): ("dev_0001 nnenglish", "dev_0002 basque"),
        ("eval", "eval_queries"): ("eval_0001 nnenglish",),
    }
    for (name, folder), entries in lists.items():
        lines = []
        for recording, language in map(str.split, entries):
            path = write_noise(root / f"{folder}/quesst14_{recording}.wav", rate=8_000)
            lines.append(f"quesst14Database/{folder}/{path.name} {language}")
        write_text_lines(root / f"scoring/language_key_{name}.lst", *lines)
    for name, matched in (("dev", ("00003", "00002", "00001")), ("eval", ("00003", "00003"))):
        query = f"quesst14_{name}_0001"
        lines = [f"LEXEME quesst14_{d} 1 0.00 5.10 {query} <NA> <NA> <NA>" for d in matched]
        lines += ["SPEAKER quesst14_00001 1 0 5 <NA> <NA> one <NA>"]
        lines += ["LEXEME quesst14_00001 1 0 5 NO_KEYWORD <NA> <NA> <NA>"]
        write_text_lines(root / f"scoring/groundtruth_quesst14_{name}/quesst14_{name}.rttm", *lines)
    return root


def test_english_queries_and_the_documents_that_hold_them(quesst14, tmp_path):
    prepare_quesst14(Quesst14(source=quesst14, out=tmp_path / "out"))
    splits = load_set(tmp_path / "out/qbe", "qbe").splits
    assert [u.id for u in splits["documents"]] == ["quesst14_00001", "quesst14_00003"]
    assert {u.id: u.matches for u in splits["dev"]} == {
        "quesst14_dev_0001": ("quesst14_00001", "quesst14_00003")
    }
    assert {u.id: u.matches for u in splits["test"]} == {"quesst14_eval_0001": ("quesst14_00003",)}
    assert splits["documents"][0].matches == ()
    assert splits["dev"][0].seconds == pytest.approx(0.1)


# ---- Fluent Speech Commands

HEADER = ",path,speakerId,transcription,action,object,location"


@pytest.fixture
def fluent(tmp_path, monkeypatch):
    """Fluent Speech Commands with four recordings."""
    counts = {"train": 2, "dev": 1, "test": 1, "actions": 2, "objects": 2, "locations": 1}
    monkeypatch.setattr("speechssl.data.fluent_speech_commands.COUNTS", counts)
    rows = {
        "train": (
            "wavs/speakers/ann/a.wav,ann,Bring me the newspaper,bring,newspaper,none",
            'wavs/speakers/bob/b.wav,bob,"Louder, please",increase,volume,none',
        ),
        "valid": ("wavs/speakers/cid/c.wav,cid,Louder,increase,volume,none",),
        "test": ("wavs/speakers/dee/d.wav,dee,Volume up,increase,volume,none",),
    }
    for split, lines in rows.items():
        numbered = [f"{i},{line}" for i, line in enumerate(lines)]
        write_text_lines(tmp_path / f"fsc/data/{split}_data.csv", HEADER, *numbered)
        for line in lines:
            write_noise(tmp_path / "fsc" / line.split(",")[0])
    return tmp_path / "fsc"


def test_intents_are_labels_of_three_slots(fluent, tmp_path):
    prepare_fluent_speech_commands(FluentSpeechCommands(source=fluent, out=tmp_path / "out"))
    data = load_labelled(tmp_path / "out/ic", "ic")
    assert data.classes["action"] == ("bring", "increase")
    assert data.classes["object"] == ("newspaper", "volume")
    second = data.splits["train"][1]
    assert (second.id, second.speaker, second.text) == ("b", "bob", "Louder, please")
    assert second.labels == {"action": "increase", "object": "volume", "location": "none"}
    assert [u.id for split in ("dev", "test") for u in data.splits[split]] == ["c", "d"]


# ---- Audio SNIPS


@pytest.fixture
def snips(tmp_path, monkeypatch):
    """Audio SNIPS, where every voice reads every split; each split has one of the three voices."""
    monkeypatch.setattr("speechssl.data.audio_snips.COUNTS", {"train": 1, "dev": 1, "test": 1})
    root = tmp_path / "SNIPS"
    names = []
    for split in ("train", "valid", "test"):
        for voice in ("Ivy", "Amy", "Brian"):
            names.append(f"{voice}-snips-{split}-7")
            write_noise(root / f"{split}/{names[-1]}.wav", rate=22_050)
    line = "{} BOS PLAY SOME ACID JAZZ EOS\tO O O genre genre PlayMusic"
    write_text_lines(root / "all.iob.snips.txt", *map(line.format, names))
    return root


def test_splits_have_their_voices_and_utterances_their_slots(snips, tmp_path):
    prepare_audio_snips(AudioSnips(source=snips, out=tmp_path / "out"))
    splits = load_set(tmp_path / "out/sf", "sf").splits
    assert [u.id for u in splits["train"]] == ["Ivy-snips-train-7"]
    assert [u.id for u in splits["dev"]] == ["Amy-snips-valid-7"]
    (utterance,) = splits["test"]
    assert (utterance.id, utterance.speaker) == ("Brian-snips-test-7", "Brian")
    assert utterance.text == "PLAY SOME ACID JAZZ"
    assert utterance.slots == (Slot("genre", "ACID JAZZ"),)
    voices = [voice for voices_of_split in VOICES.values() for voice in voices_of_split]
    assert len(voices) == 16
    assert len(set(voices)) == 16


@pytest.mark.parametrize(
    ("words", "tags", "text", "slots"),
    [
        ("a b c", "x x y", "A B C", [("x", "A B"), ("y", "C")]),
        ("a b c", "B-x I-x B-x", "A B C", [("x", "A B"), ("x", "C")]),
        ("a b c d", "x O x x", "A B C D", [("x", "A"), ("x", "C D")]),
        ("rock & roll !", "g g g O", "ROCK AND ROLL", [("g", "ROCK AND ROLL")]),
        ("a , b", "x x x", "A B", [("x", "A B")]),
    ],
)
def test_slots_are_parsed_from_tags(words, tags, text, slots):
    expected = tuple(Slot(*slot) for slot in slots)
    assert parse_slots(words.split(), tags.split()) == (text, expected)


# ---- IEMOCAP

PUBLISHED = dict(IEMOCAP_COUNTS)  # a copy: the fixture replaces them


@pytest.fixture
def iemocap(tmp_path, monkeypatch):
    """IEMOCAP with two dialogues a session. A dialogue has seven turns, five of them with an emotion
    of the four classes."""
    monkeypatch.setattr("speechssl.data.iemocap.COUNTS", dict.fromkeys(PUBLISHED, 10))
    root = tmp_path / "IEMOCAP"
    for number, session in enumerate(PUBLISHED, 1):
        for dialogue in (f"Ses0{number}F_impro01", f"Ses0{number}M_script01_1"):
            lines = ["% [START_TIME - END_TIME] TURN_NAME EMOTION [V, A, D]", ""]
            # the last two are no emotions of the classes
            for i, emotion in enumerate(("neu", "exc", "hap", "ang", "sad", "fru", "xxx")):
                name = f"{dialogue}_{'FM'[i % 2]}{i:03d}"
                lines += [f"[{i}.0 - {i}.5]\t{name}\t{emotion}\t[2.5, 2.5, 2.5]"]
                lines += ["C-E1:\tNeutral;\t()", ""]
                write_noise(root / f"{session}/sentences/wav/{dialogue}/{name}.wav")
            write_text_lines(root / f"{session}/dialog/EmoEvaluation/{dialogue}.txt", *lines)
    return root


def test_folds_have_the_splits_of_s3prl(iemocap, tmp_path):
    """A fold tests on one session. Its dev is sampled as by s3prl: `random_split` after
    `torch.manual_seed(0)`."""
    cards = prepare_iemocap(Iemocap(source=iemocap, out=tmp_path / "out"))
    assert list(cards) == [f"er/fold-{i}" for i in range(1, 6)]
    assert sum(PUBLISHED.values()) == 5531  # utterances of the four classes
    for number in range(1, 6):
        data = load_labelled(tmp_path / f"out/er/fold-{number}", "er")
        assert data.classes == {"emotion": ("ang", "hap", "neu", "sad")}
        train, dev, test = ([u.id for u in data.splits[s]] for s in ("train", "dev", "test"))
        assert (len(train), len(dev), len(test)) == (32, 8, 10)
        assert {name[:5] for name in test} == {f"Ses0{number}"}
        assert {name[:5] for name in train + dev} == {
            f"Ses0{i}" for i in range(1, 6) if i != number
        }
        in_order = sorted(train + dev, key=lambda name: (name[:-5], name[-3:]))
        torch.manual_seed(0)
        expected_train, expected_dev = torch.utils.data.random_split(in_order, [32, 8])
        assert train == list(expected_train)
        assert dev == list(expected_dev)
    by_id = {u.id: u for u in load_labelled(tmp_path / "out/er/fold-2").splits["test"]}
    assert by_id["Ses02F_impro01_M001"].labels == {"emotion": "hap"}
    assert by_id["Ses02F_impro01_M001"].speaker == "Ses02M"
    assert by_id["Ses02M_script01_1_F002"].speaker == "Ses02F"
    assert "Ses02F_impro01_M005" not in by_id


# ---- VoxCeleb1

TRAINING = ("id10001", "id10002")  # speakers
TESTED = ("id10270", "id10271")  # speakers of the trials


@pytest.fixture
def voxceleb1(tmp_path, monkeypatch):
    """VoxCeleb1. Every speaker has two training recordings, one of them short, two of dev, from two
    videos, and one of the test."""
    root = tmp_path / "vox"
    lines = []
    # split in iden_split.txt (1 train, 2 dev, 3 test), video/number
    names = "1 va/00001", "1 va/00002", "2 va/00003", "2 vb/00001", "3 vc/00001"
    for speaker in TRAINING + TESTED:
        for code, name in map(str.split, names):
            lines.append(f"{code} {speaker}/{name}.wav")
            folder = root / ("dev" if speaker in TRAINING else "test") / "wav"
            write_noise(folder / speaker / f"{name}.wav", 0.5 if name == "va/00002" else 2.0, 8_000)
    write_text_lines(root / "iden_split.txt", *lines)
    first, second = (f"{speaker}/va/00001.wav" for speaker in TESTED)
    write_text_lines(
        root / "veri_test.txt", f"1 {first} {TESTED[0]}/vb/00001.wav", f"0 {first} {second}"
    )
    sid = {"train": 8, "dev": 8, "test": 4, "speakers": 4}
    asv = {"recordings to train on": 10, "training speakers": 2, "test speakers": 2, "trials": 2}
    monkeypatch.setattr("speechssl.data.voxceleb1.SID_COUNTS", sid)
    monkeypatch.setattr("speechssl.data.voxceleb1.ASV_COUNTS", asv)
    return root


def test_sid_has_all_recordings_by_split(voxceleb1, tmp_path):
    prepare_voxceleb1(VoxCeleb1(source=voxceleb1, out=tmp_path / "out", tasks=["sid"]))
    data = load_labelled(tmp_path / "out/sid", "sid")
    assert data.classes == {"speaker": TRAINING + TESTED}
    assert [len(data.splits[split]) for split in ("train", "dev", "test")] == [8, 8, 4]
    assert data.splits["test"][-1].id == "id10271-vc-00001"
    assert data.splits["train"][1].seconds == 0.5
    assert not (tmp_path / "out/asv").exists()


def test_asv_trains_on_other_speakers_than_those_of_the_trials(voxceleb1, tmp_path):
    prepare_voxceleb1(VoxCeleb1(source=voxceleb1, out=tmp_path / "out"))
    data = load_set(tmp_path / "out/asv", "asv")
    names = {split: {u.id for u in data.splits[split]} for split in data.splits}
    # without the short recording va/00002
    assert names["train"] == {f"{s}-{name}" for s in TRAINING for name in ("va-00001", "vc-00001")}
    assert names["dev"] == {f"{s}-{name}" for s in TRAINING for name in ("va-00003", "vb-00001")}
    # only recordings of trials
    assert names["test"] == {"id10270-va-00001", "id10270-vb-00001", "id10271-va-00001"}
    assert [t.same for t in load_trials(data, "test")] == [True, False]
    same = {(t.first, t.second) for t in load_trials(data, "dev") if t.same}
    assert same == {(f"{s}-va-00003", f"{s}-vb-00001") for s in TRAINING}


# ---- Libri2Mix: sources for SS, turns in rttm or in segments for SD

MIXES = {
    "train": ("1-2-3_4-5-6", "1-2-4_7-5-6"),
    "dev": ("8-2-3_9-5-6",),
    "test": ("10-2-3_11-5-6",),
}


@pytest.fixture
def libri2mix(tmp_path, monkeypatch):
    """Mixtures of Libri2Mix and their sources."""
    for name in ("SD_COUNTS", "SS_COUNTS"):
        monkeypatch.setattr(f"speechssl.data.libri2mix.{name}", {"train": 2, "dev": 1, "test": 1})
    for split, names in MIXES.items():
        for name in names:
            for kind in ("mix_clean", "s1", "s2"):
                write_noise(tmp_path / f"Libri2Mix/wav16k/min/{FOLDERS[split]}/{kind}/{name}.wav")
    return tmp_path / "Libri2Mix"


@pytest.fixture
def kaldi(tmp_path):
    """Kaldi data folders of the mixtures. The first speaker speaks twice, the second once; both end
    at 1.5 s."""
    for split, names in MIXES.items():
        lines = {"wav.scp": [], "rttm": [], "segments": [], "utt2spk": []}
        for name in names:
            lines["wav.scp"].append(
                f"{name} {write_noise(tmp_path / f'max/{split}/{name}.wav', 2.0)}"
            )
            first, second = (half.split("-")[0] for half in name.split("_"))
            turns = ((first, 0.25, 0.5), (first, 0.75, 1.5), (second, 0.1, 1.5))
            for speaker, start, end in turns:
                turn, seconds = f"{speaker}_{name}_{start}", end - start
                lines["rttm"].append(f"SPEAKER\t{name}\t1\t{start}\t{seconds}\t-\t-\t{speaker}\t-")
                lines["segments"].append(f"{turn} {name} {start} {end}")
                lines["utt2spk"].append(f"{turn} {speaker}")
        for file, lines_of_file in lines.items():
            write_text_lines(tmp_path / "diarization" / split / file, *lines_of_file)
    return tmp_path / "diarization"


def test_mixtures_have_two_speakers_and_two_sources(libri2mix, tmp_path):
    prepare_libri2mix(Libri2Mix(source=libri2mix, out=tmp_path / "out", tasks=["ss"]))
    data = load_set(tmp_path / "out/ss", "ss")
    mixture = data.splits["train"][0]
    assert (mixture.id, list_speakers(mixture)) == ("1-2-3_4-5-6", ("1", "4"))
    folder = libri2mix / "wav16k/min/train-100"
    assert mixture.audio == str(folder / "mix_clean/1-2-3_4-5-6.wav")
    assert mixture.sources == tuple(str(folder / s / "1-2-3_4-5-6.wav") for s in ("s1", "s2"))
    assert [len(utterances) for utterances in data.splits.values()] == [2, 1, 1]


@pytest.mark.parametrize("kind", ["rttm", "segments"])
def test_turns_are_read_from_rttm_or_segments(libri2mix, kaldi, tmp_path, kind):
    for split in MIXES:
        (kaldi / split / ("rttm" if kind == "segments" else "segments")).unlink()
    prepare_libri2mix(Libri2Mix(source=libri2mix, out=tmp_path / "out", diarization=kaldi))
    mixture = load_set(tmp_path / "out/sd", "sd").splits["train"][0]
    assert mixture.turns == (Turn("4", 0.1, 1.5), Turn("1", 0.25, 0.5), Turn("1", 0.75, 1.5))
    assert mixture.seconds == 2.0


def test_dev_of_separation_is_the_sample_of_s3prl():
    """s3prl sorts the names, shuffles them after `random.seed(7)`, takes the first thousand, and
    sorts these."""
    names = [f"{number * 7919 % 3000:04d}" for number in range(3000)]
    shuffled = sorted(names)
    random.seed(7)
    random.shuffle(shuffled)
    paths = [Path(f"{name}.wav") for name in names]
    assert [path.stem for path in subsample(paths)] == sorted(shuffled[:1000])


# ---- sets that are refused

PREPARE = {  # fixture -> (function, dataclass of its options, further options)
    "voicebank": (prepare_voicebank_demand, VoiceBankDemand, {}),
    "librispeech": (prepare_librispeech, LibriSpeech, {"tasks": ["asr"]}),
    "commands": (prepare_speech_commands, SpeechCommands, {}),
    "quesst14": (prepare_quesst14, Quesst14, {}),
    "fluent": (prepare_fluent_speech_commands, FluentSpeechCommands, {}),
    "snips": (prepare_audio_snips, AudioSnips, {}),
    "iemocap": (prepare_iemocap, Iemocap, {}),
    "voxceleb1": (prepare_voxceleb1, VoxCeleb1, {}),
    "kaldi": (prepare_libri2mix, Libri2Mix, {"tasks": ["sd"], "diarization": Path("no")}),
}
GROUND_TRUTH = "scoring/groundtruth_quesst14_eval/quesst14_eval.rttm"


@pytest.mark.parametrize(
    ("name", "path", "text", "message"),
    [
        ("voicebank", "clean_testset_wav/p257_003.wav", None, "p257_003.wav is missing"),
        ("librispeech", "train-clean-100/103/9/103-9.trans.txt", "a", "trans.txt:1"),
        ("commands", NOISE, None, "0 background recordings, not the published 1"),
        ("quesst14", GROUND_TRUTH, None, "quesst14_eval.rttm"),
        ("fluent", "data/train_data.csv", "path\na,b", "train_data.csv, row 1 has 2 cells"),
        ("voxceleb1", "veri_test.txt", None, "veri_test.txt"),
        ("voxceleb1", "iden_split.txt", "0 id10001/va/00001.wav", "iden_split.txt:1 .* split 0"),
        ("snips", ANNOTATIONS, "Ivy-snips-train-7 BOS A EOS\tO O", "is not whole .*ValueError"),
        ("kaldi", "dev/rttm", "SPEAKER other 1 0 1 - - 8 -", "is not whole .*KeyError"),
        ("snips", ANNOTATIONS, "Ivy-snips-train-7 BOS A EOS", "snips.txt:1 has 1 fields"),
        ("kaldi", "dev/rttm", "SPEAKER 8-2-3_9-5-6 1 soon 1 - - 8 -", r"rttm:1"),
    ],
)
def test_a_missing_or_damaged_file_is_refused(request, absent_out, name, path, text, message):
    root = request.getfixturevalue(name)
    prepare, kind, options = PREPARE[name]
    (root / path).unlink()
    if text is not None:
        (root / path).write_text(text)
    source = root
    if name == "kaldi":
        source, options = request.getfixturevalue("libri2mix"), options | {"diarization": root}
    refused(message, prepare, kind(source=source, out=absent_out, **options))


def test_any_count_accepts_another_count_with_a_warning(voicebank, tmp_path, capsys):
    (voicebank / "clean_testset_wav/p257_003.wav").unlink()
    o = VoiceBankDemand(source=voicebank, out=tmp_path / "part", any_count=True)
    assert prepare_voicebank_demand(o)["se"]["sizes"]["test"] == 1
    assert "warning: " in capsys.readouterr().err


def test_words_without_a_pronunciation_and_unknown_phones_are_refused(
    librispeech, lexicons, absent_out
):
    o = LibriSpeech(source=librispeech, out=absent_out, lexicon=lexicons[:1], tasks=["pr"])
    refused("the lexicon lacks 1 words, such as .* in 103-9-0001", prepare_librispeech, o)
    write_text_lines(lexicons[0], "A AH")
    refused("1 has the phone 'AH'; give a lexicon of ARPAbet with str", prepare_librispeech, o)


def test_a_missing_folder_is_refused(tmp_path, absent_out):
    o = VoiceBankDemand(source=tmp_path / "no", out=absent_out)
    refused("; give the folder .* voicebank-demand --help", prepare_voicebank_demand, o)

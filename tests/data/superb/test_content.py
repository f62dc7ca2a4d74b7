"""LibriSpeech, Speech Commands, FSDD and QUESST 2014: what is read of each, and one sentence for what is wrong with it."""

import numpy as np
import pytest
import soundfile
import torch

from speechssl.audio import read_audio
from speechssl.data.superb import Slot, content, load_labelled, load_set
from speechssl.data.superb.content import (
    IEMOCAP_COUNTS,
    PHONES,
    VOICES,
    parse_slots,
    prepare_audio_snips,
    prepare_fluent_speech_commands,
    prepare_fsdd,
    prepare_iemocap,
    prepare_librispeech,
    prepare_quesst14,
    prepare_speech_commands,
    read_lexicons,
    split_of,
)
from speechssl.errors import InputError

from ...files import untouched

# ---- LibriSpeech


@pytest.fixture
def librispeech(tmp_path, write, say, monkeypatch):
    monkeypatch.setattr(content, "LIBRISPEECH_COUNTS", {"train": 2, "dev": 1, "test": 1})
    texts = {"train-clean-100/103": ("GO ON", "IT'S A GO"), "dev-clean/84": ("A GO",), "test-clean/61": ("ON",)}
    for folder, lines in texts.items():
        chapter, speaker = tmp_path / f"LibriSpeech/{folder}/9", folder.partition("/")[2]
        say(chapter / f"{speaker}-9.trans.txt", *(f"{speaker}-9-{i:04d} {line}" for i, line in enumerate(lines)))
        for i in range(len(lines)):
            write(chapter / f"{speaker}-9-{i:04d}.flac", 0.1 + i)
    return tmp_path / "LibriSpeech"


@pytest.fixture
def lexicons(tmp_path, say):
    """The second has a word that the first lacks."""
    say(tmp_path / "lexicon.txt", "A\tAH0", "A  EY1", "GO\tG OW1", "ON\tAA1 N")
    say(tmp_path / "more.txt", "IT'S IH1 T S", "GO G AA1")
    return [tmp_path / "lexicon.txt", tmp_path / "more.txt"]


def test_text_and_phones(librispeech, lexicons, tmp_path):
    cards = prepare_librispeech(librispeech, tmp_path / "out", lexicons)
    asr, pr = (load_set(tmp_path / "out" / task, task) for task in ("asr", "pr"))
    assert [u.text for u in asr.splits["train"]] == ["GO ON", "IT'S A GO"]
    assert [u.phones for u in pr.splits["train"]] == ["G OW1 AA1 N", "IH1 T S AH0 G OW1"]  # the first file, the first line
    assert [u.text for u in pr.splits["train"]] == ["", ""]
    two = asr.splits["train"][1]
    assert (two.id, two.speaker, two.seconds) == ("103-9-0001", "103", 1.1) and asr.path(two).name == "103-9-0001.flac"
    assert cards["pr"]["sizes"] == {"train": 2, "dev": 1, "test": 1} and "lexicons" not in cards["asr"]
    assert len(PHONES) == 71 and read_lexicons(lexicons)["A"] == "AH0"  # as SUPERB has them


def test_asr_needs_no_lexicon_and_pr_can_come_later(librispeech, lexicons, tmp_path):
    first = prepare_librispeech(librispeech, tmp_path / "out", tasks=["asr"])
    assert set(first) == {"asr"} and not (tmp_path / "out/pr").exists()
    assert prepare_librispeech(librispeech, tmp_path / "out", lexicons)["asr"] == first["asr"]
    with pytest.raises(InputError, match="made with other settings"):
        prepare_librispeech(librispeech, tmp_path / "out", lexicons[::-1])


def test_what_librispeech_lacks_is_one_sentence(librispeech, lexicons, tmp_path, say):
    say(tmp_path / "plain.txt", "A AH")
    for lexicon, tasks, message in (
        ([], ["pr"], "pr needs the phones of words; give --lexicon"),
        (lexicons[:1], ["pr"], r"the lexicon lacks 1 words, such as \"IT'S\" in 103-9-0001; give --lexicon a sec"),
        ([tmp_path / "plain.txt"], ["pr"], r"plain.txt:1 has the phone 'AH'; give a lexicon of ARPAbet with stress"),
        ([], ["ks"], "LibriSpeech has no task ks; choose from pr, asr"),
    ):
        with pytest.raises(InputError, match=message):
            prepare_librispeech(librispeech, tmp_path / "out", lexicon, tasks)
    (librispeech / "train-clean-100/103/9/103-9-0001.flac").unlink()
    with pytest.raises(InputError, match=r"1 train and not 2 as published, where .*103-9-0001.flac is missing; unpack"):
        prepare_librispeech(librispeech, tmp_path / "out", tasks=["asr"])
    assert prepare_librispeech(librispeech, tmp_path / "part", tasks=["asr"], any_count=True)["asr"]["sizes"]["train"] == 1
    (librispeech / "dev-clean").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"dev-clean does not exist; give the folder LibriSpeech, which holds train-clean-100"):
        prepare_librispeech(librispeech, tmp_path / "out", tasks=["asr"])
    assert not (tmp_path / "out").exists()


# ---- Speech Commands

# of the lists that come with the corpus (validation_list.txt, testing_list.txt), and one of neither
SPEAKERS = {"dev": "026290a7", "test": "0c40e715", "train": "0a7c2a8d"}
NOISE = "speech_commands_v0.01/_background_noise_/pink_noise.wav"


@pytest.fixture
def commands(tmp_path, write, monkeypatch):
    """Every split needs every class: three words of a speaker of each."""
    root = tmp_path / "sc"
    for word in ("yes", "bed"):
        for speaker in SPEAKERS.values():
            write(root / f"speech_commands_v0.01/{word}/{speaker}_nohash_0.wav")
    write(root / NOISE, 11.5)
    for name in (*content.KEYWORDS, content.UNKNOWN, content.SILENCE):
        write(root / f"speech_commands_test_set_v0.01/{name}/{SPEAKERS['test']}_nohash_1.wav")
    monkeypatch.setattr(content, "COMMANDS_COUNTS", {"train": 2, "dev": 2, "test": 12, "background recordings": 1})
    return root


@pytest.mark.parametrize(("split", "speaker"), SPEAKERS.items())
def test_the_split_is_that_of_the_corpus(split, speaker):
    assert split_of(f"{speaker}_nohash_0.wav") == split_of(f"{speaker}_nohash_4.wav") == split


@pytest.mark.slow
def test_the_split_is_that_of_s3prl(commands):
    theirs = pytest.importorskip("s3prl.dataio.corpus.speech_commands")
    for number in np.random.default_rng(1).integers(0, 2**32, 200):
        (commands / f"speech_commands_v0.01/bed/{number:08x}_nohash_{number % 3}.wav").touch()
    train, dev = theirs.SpeechCommandsV1.split_dataset(commands / "speech_commands_v0.01")
    for split, found in (("train", train), ("dev", dev)):
        assert found and {split_of(path.name) for _, path in found} == {split}
    left = set((commands / "speech_commands_v0.01").glob("[a-z]*/*.wav")) - {path for _, path in train + dev}
    assert left and {split_of(path.name) for path in left} == {"test"}


def test_words_and_seconds_of_the_noise(commands, tmp_path):
    samples, rate = soundfile.read(commands / NOISE)
    samples[32_000:48_000] = 0  # digital silence is left out
    soundfile.write(commands / NOISE, samples, rate)
    card = prepare_speech_commands(commands, tmp_path / "out")["ks"]
    data = load_set(tmp_path / "out/ks", "ks")
    words = {split: {u.id: u.labels["keyword"] for u in found if u.speaker} for split, found in data.splits.items()}
    assert words["train"] == {"bed/0a7c2a8d_nohash_0": "_unknown_", "yes/0a7c2a8d_nohash_0": "yes"}
    assert set(words["dev"]) == {"bed/026290a7_nohash_0", "yes/026290a7_nohash_0"}
    silent = {split: [u for u in found if u.labels["keyword"] == "_silence_"] for split, found in data.splits.items()}
    assert [u.id for u in silent["dev"]] == ["_silence_/pink_noise-000"] and len(silent["train"]) == 9
    assert card["sizes"] == {"train": 11, "dev": 3, "test": 12}
    one = next(u for u in silent["train"] if u.id.endswith("noise-003"))
    cut = read_audio(data.path(one))
    assert one.seconds == len(cut) / 16_000 == 1
    np.testing.assert_allclose(cut, samples[48_000:64_000], atol=1e-4)


def test_another_tree_than_that_of_speech_commands_is_one_sentence(commands, tmp_path):
    with pytest.raises(InputError, match=r"speech_commands_v0.01 does not exist; give the folder that holds"):
        prepare_speech_commands(commands / "speech_commands_v0.01", tmp_path / "out")
    (commands / NOISE).unlink()
    with pytest.raises(InputError, match="has 0 background recordings and not 1 as published"):
        prepare_speech_commands(commands, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- the Free Spoken Digit Dataset


@pytest.fixture
def fsdd(tmp_path):
    """Two digits by two speakers, eleven times."""
    folder = tmp_path / "fsdd/recordings"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in (f"{digit}_{speaker}" for digit in (0, 7) for speaker in ("jackson", "theo")):
        for index in range(11):
            soundfile.write(folder / f"{name}_{index}.wav", rng.uniform(-0.5, 0.5, 2_001 + index), 8_000)
    (folder / "notes.txt").write_text("not a recording")
    return folder.parent


def test_both_tasks_share_the_audio_and_the_customary_split(fsdd, tmp_path):
    first = prepare_fsdd(fsdd, tmp_path / "out")
    ks, sid = (load_labelled(tmp_path / "out" / task) for task in ("ks", "sid"))
    assert ks.classes == {"keyword": ("seven", "zero")} and sid.classes == {"speaker": ("jackson", "theo")}
    assert [len(ks.splits[s]) for s in ("train", "dev", "test")] == [4, 20, 20]
    assert {u.id for u in ks.splits["test"]} == {f"{d}_{s}_{i}" for d in (0, 7) for s in ("jackson", "theo") for i in range(5)}
    one = next(u for u in ks.splits["train"] if u.id == "7_theo_10")
    assert one.labels == {"keyword": "seven"} and one.speaker == "theo"
    samples = read_audio(ks.path(one))
    assert len(samples) == 2 * 2_011 and one.seconds == len(samples) / 16_000
    assert ks.path(one).samefile(sid.path(next(u for u in sid.splits["train"] if u.id == one.id)))
    with untouched(tmp_path / "out"):
        assert prepare_fsdd(fsdd / "recordings", tmp_path / "out") == first  # made once, from either folder
    (fsdd / "recordings/0_theo_3.wav").unlink()
    with pytest.raises(InputError, match="FSDD corpus made with other settings"):
        prepare_fsdd(fsdd, tmp_path / "out")


def test_what_is_not_fsdd_is_one_sentence(fsdd, tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="has no recordings like 7_jackson_32.wav"):
            prepare_fsdd(folder, tmp_path / "out")
    for path in (fsdd / "recordings").glob("*_[5-9].wav"):
        path.unlink()
    with pytest.raises(InputError, match="has no recordings for dev"):
        prepare_fsdd(fsdd, tmp_path / "out")
    (fsdd / "recordings/0_theo_3.wav").write_bytes(b"nothing")
    with pytest.raises(InputError, match="0_theo_3.wav"):
        prepare_fsdd(fsdd, tmp_path / "other")


# ---- QUESST 2014


@pytest.fixture
def quesst14(tmp_path, write, say, monkeypatch):
    monkeypatch.setattr(content, "QUESST_COUNTS", {"documents": 2, "dev": 1, "test": 1})
    root = tmp_path / "quesst"  # not under its own name
    lists = {
        "utterances": ("Audio", "quesst14_00001 nnenglish", "quesst14_00002 czech", "quesst14_00003 nnenglish"),
        "dev": ("dev_queries", "quesst14_dev_0001 nnenglish", "quesst14_dev_0002 basque"),
        "eval": ("eval_queries", "quesst14_eval_0001 nnenglish"),
    }
    for name, (folder, *lines) in lists.items():
        named = [line.split() for line in lines]
        say(root / f"scoring/language_key_{name}.lst", *(f"quesst14Database/{folder}/{n}.wav {lang}" for n, lang in named))
        for recording, _ in named:
            write(root / f"{folder}/{recording}.wav", rate=8_000)
    for name, matched in (("dev", ("00003", "00002", "00001")), ("eval", ("00003", "00003"))):
        lines = [f"LEXEME quesst14_{d} 1 0.00 5.10 quesst14_{name}_0001 <NA> <NA> <NA>" for d in matched]
        lines += ["SPEAKER quesst14_00001 1 0 5 <NA> <NA> one <NA>", "LEXEME quesst14_00001 1 0 5 NO_KEYWORD <NA> <NA> <NA>"]
        say(root / f"scoring/groundtruth_quesst14_{name}/quesst14_{name}.rttm", *lines)
    return root


def test_english_queries_and_the_documents_that_hold_them(quesst14, tmp_path):
    prepare_quesst14(quesst14, tmp_path / "out")
    splits = load_set(tmp_path / "out/qbe", "qbe").splits
    assert [u.id for u in splits["documents"]] == ["quesst14_00001", "quesst14_00003"]
    assert {u.id: u.matches for u in splits["dev"]} == {"quesst14_dev_0001": ("quesst14_00001", "quesst14_00003")}
    assert {u.id: u.matches for u in splits["test"]} == {"quesst14_eval_0001": ("quesst14_00003",)}
    assert splits["documents"][0].matches == () and splits["dev"][0].seconds == pytest.approx(0.1)


def test_another_ground_truth_is_one_sentence(quesst14, tmp_path, say):
    (quesst14 / "Audio/quesst14_00003.wav").unlink()
    with pytest.raises(InputError, match=r"1 documents and not 2 as published, where .*Audio/quesst14_00003.wav is missing"):
        prepare_quesst14(quesst14, tmp_path / "out")
    truth = quesst14 / "scoring/groundtruth_quesst14_eval/quesst14_eval.rttm"  # the one document that held the test query is gone
    with pytest.raises(InputError, match=r"quesst14_eval.rttm has no query with documents that contain it; give the folder"):
        prepare_quesst14(quesst14, tmp_path / "out", any_count=True)
    truth.unlink()
    with pytest.raises(InputError, match=r"quesst14_eval.rttm does not exist; give the folder"):
        prepare_quesst14(quesst14, tmp_path / "out", any_count=True)


# ---- fluent Speech Commands, Audio SNIPS and IEMOCAP: what is read of each, and one sentence for what is wrong with it


# ---- Fluent Speech Commands

HEADER = ",path,speakerId,transcription,action,object,location"


@pytest.fixture
def fluent(tmp_path, write, say, monkeypatch):
    counts = {"train": 2, "dev": 1, "test": 1, "actions": 2, "objects": 2, "locations": 1}
    monkeypatch.setattr(content, "FLUENT_COUNTS", counts)
    root = tmp_path / "fsc"
    rows = {
        "train": (
            "wavs/speakers/ann/a.wav,ann,Bring me the newspaper,bring,newspaper,none",
            'wavs/speakers/bob/b.wav,bob,"Louder, please",increase,volume,none',
        ),
        "valid": ("wavs/speakers/cid/c.wav,cid,Louder,increase,volume,none",),
        "test": ("wavs/speakers/dee/d.wav,dee,Volume up,increase,volume,none",),
    }
    for split, lines in rows.items():
        say(root / f"data/{split}_data.csv", HEADER, *(f"{i},{line}" for i, line in enumerate(lines)))
        for line in lines:
            write(root / line.split(",")[0])
    return root


def test_intents(fluent, tmp_path):
    prepare_fluent_speech_commands(fluent, tmp_path / "out")
    data = load_labelled(tmp_path / "out/ic", "ic")
    assert data.classes == {"action": ("bring", "increase"), "location": ("none",), "object": ("newspaper", "volume")}
    two = data.splits["train"][1]
    assert (two.id, two.speaker, two.text) == ("b", "bob", "Louder, please")
    assert two.labels == {"action": "increase", "object": "volume", "location": "none"}
    assert [u.id for split in ("dev", "test") for u in data.splits[split]] == ["c", "d"]


def test_another_table_is_one_sentence(fluent, tmp_path, say):
    table = fluent / "data/train_data.csv"
    say(table, HEADER, *(line.replace("increase", "bring") for line in table.read_text().splitlines()[1:]))
    with pytest.raises(InputError, match="has 1 actions and not 2 as published"):
        prepare_fluent_speech_commands(fluent, tmp_path / "out")
    say(table, "path,speakerId", "wavs/speakers/ann/a.wav,ann")
    with pytest.raises(InputError, match=r"train_data.csv:2 has no transcription; unpack"):
        prepare_fluent_speech_commands(fluent, tmp_path / "out")
    table.unlink()
    with pytest.raises(InputError, match=r"train_data.csv does not exist; give the folder fluent_speech_commands_dataset"):
        prepare_fluent_speech_commands(fluent, tmp_path / "out")


# ---- Audio SNIPS


@pytest.fixture
def snips(tmp_path, write, say, monkeypatch):
    """Every voice in every split, of which three are wanted."""
    monkeypatch.setattr(content, "SNIPS_COUNTS", {"train": 1, "dev": 1, "test": 1})
    root, names = tmp_path / "SNIPS", []
    for split in ("train", "valid", "test"):
        for voice in ("Ivy", "Amy", "Brian"):
            names.append(f"{voice}-snips-{split}-7")
            write(root / f"{split}/{names[-1]}.wav", rate=22_050)
    line = "{} BOS PLAY SOME ACID JAZZ EOS\tO O O genre genre PlayMusic"
    say(root / "all.iob.snips.txt", *map(line.format, names))
    return root


def test_voices_and_slots(snips, tmp_path):
    prepare_audio_snips(snips, tmp_path / "out")
    splits = load_set(tmp_path / "out/sf", "sf").splits
    named = {split: [u.id for u in found] for split, found in splits.items()}
    assert named == {"train": ["Ivy-snips-train-7"], "dev": ["Amy-snips-valid-7"], "test": ["Brian-snips-test-7"]}
    one = splits["test"][0]
    assert (one.text, one.slots, one.speaker) == ("PLAY SOME ACID JAZZ", (Slot("genre", "ACID JAZZ"),), "Brian")
    voices = [voice for found in VOICES.values() for voice in found]
    assert len(voices) == len(set(voices)) == 16


@pytest.mark.parametrize(
    ("words", "tags", "text", "slots"),
    [
        ("a b c", "O O O", "A B C", []),
        ("a b c", "x x y", "A B C", [("x", "A B"), ("y", "C")]),
        ("a b c", "B-x I-x B-x", "A B C", [("x", "A B"), ("x", "C")]),
        ("a b c d", "x O x x", "A B C D", [("x", "A"), ("x", "C D")]),
        ("rock & roll !", "g g g O", "ROCK AND ROLL", [("g", "ROCK AND ROLL")]),
        ("a , b", "x x x", "A B", [("x", "A B")]),
        ("a ,", "O x", "A", []),
    ],
)
def test_slots_of_tags(words, tags, text, slots):
    assert parse_slots("here", words.split(), tags.split()) == (text, tuple(Slot(*slot) for slot in slots))


def test_another_snips_is_one_sentence(snips, tmp_path, say):
    (snips / "valid/Amy-snips-valid-7.wav").unlink()
    with pytest.raises(InputError, match=r"has 0 dev and not 1 as published, where .*Amy-snips-valid-7.wav is missing"):
        prepare_audio_snips(snips, tmp_path / "out")
    say(snips / "all.iob.snips.txt", "Ivy-snips-train-7 BOS PLAY JAZZ EOS\tO O PlayMusic")
    with pytest.raises(InputError, match=r"all.iob.snips.txt:1 has 2 words and 1 tags; prepare Audio SNIPS again"):
        prepare_audio_snips(snips, tmp_path / "out")
    say(snips / "all.iob.snips.txt", "Ivy-snips-train-7 BOS PLAY JAZZ EOS")
    with pytest.raises(InputError, match=r"all.iob.snips.txt:1 has 1 fields instead of 2"):
        prepare_audio_snips(snips, tmp_path / "out")
    (snips / "all.iob.snips.txt").unlink()
    with pytest.raises(InputError, match=r"all.iob.snips.txt does not exist; give the folder SNIPS"):
        prepare_audio_snips(snips, tmp_path / "out")


# ---- IEMOCAP

PUBLISHED = dict(IEMOCAP_COUNTS)


@pytest.fixture
def iemocap(tmp_path, write, say, monkeypatch):
    monkeypatch.setattr(content, "IEMOCAP_COUNTS", dict.fromkeys(PUBLISHED, 10))
    root = tmp_path / "IEMOCAP"
    for number, session in enumerate(PUBLISHED, 1):
        for dialogue in (f"Ses0{number}F_impro01", f"Ses0{number}M_script01_1"):
            lines = ["% [START_TIME - END_TIME] TURN_NAME EMOTION [V, A, D]", ""]
            for i, emotion in enumerate(("neu", "exc", "hap", "ang", "sad", "fru", "xxx")):  # the last two are no class
                name = f"{dialogue}_{'FM'[i % 2]}{i:03d}"
                lines += [f"[{i}.0 - {i}.5]\t{name}\t{emotion}\t[2.5, 2.5, 2.5]", "C-E1:\tNeutral;\t()", ""]
                write(root / f"{session}/sentences/wav/{dialogue}/{name}.wav")
            say(root / f"{session}/dialog/EmoEvaluation/{dialogue}.txt", *lines)
        (root / f"{session}/dialog/EmoEvaluation/._Ses.txt").write_bytes(b"\x00\xff")
    return root


def test_folds(iemocap, tmp_path):
    """A fold tests on a session, and draws dev as s3prl does: `random_split` after `torch.manual_seed(0)`, in order."""
    cards = prepare_iemocap(iemocap, tmp_path / "out")
    assert list(cards) == [f"er/fold-{i}" for i in range(1, 6)] and sum(PUBLISHED.values()) == 5531
    for number in range(1, 6):
        data = load_labelled(tmp_path / f"out/er/fold-{number}", "er")
        assert data.classes == {"emotion": ("ang", "hap", "neu", "sad")}
        assert {split: len(found) for split, found in data.splits.items()} == {"train": 32, "dev": 8, "test": 10}
        assert {u.id[:5] for u in data.splits["test"]} == {f"Ses0{number}"}
        assert {u.id[:5] for u in data.splits["train"] + data.splits["dev"]} == {f"Ses0{i}" for i in range(1, 6) if i != number}
        ours = [u.id for split in ("train", "dev") for u in data.splits[split]]
        torch.manual_seed(0)
        train, dev = torch.utils.data.random_split(sorted(ours, key=lambda name: (name[:-5], name[-3:])), [32, 8])
        assert [u.id for u in data.splits["train"]] == list(train) and [u.id for u in data.splits["dev"]] == list(dev)
    found = {u.id: u for u in load_labelled(tmp_path / "out/er/fold-2").splits["test"]}
    assert found["Ses02F_impro01_M001"].labels == {"emotion": "hap"} and found["Ses02F_impro01_M001"].speaker == "Ses02M"
    assert found["Ses02M_script01_1_F002"].speaker == "Ses02F" and "Ses02F_impro01_M005" not in found


def test_another_tree_than_that_of_iemocap_is_one_sentence(iemocap, tmp_path):
    (iemocap / "Session3/sentences/wav/Ses03F_impro01/Ses03F_impro01_F000.wav").unlink()
    with pytest.raises(InputError, match=r"has 9 Session3 and not 10 as published, where .*Ses03F_impro01_F000.wav is missing"):
        prepare_iemocap(iemocap, tmp_path / "out")
    assert len(prepare_iemocap(iemocap, tmp_path / "part", any_count=True)) == 5
    with pytest.raises(InputError, match=r"Session1/sentences/wav does not exist; give the folder IEMOCAP_full_release"):
        prepare_iemocap(iemocap / "Session3", tmp_path / "out")
    assert not (tmp_path / "out").exists()

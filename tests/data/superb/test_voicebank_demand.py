"""VoiceBank-DEMAND: two speakers of the training set are dev; every noisy recording knows its clean one."""

from pathlib import Path

from speechssl.data.superb.voicebank_demand import COUNTS, prepare_voicebank_demand
from speechssl.data.utterances import load_set


def test_splits_and_clean_recordings(tmp_path, write):
    names = {"trainset_28spk_wav": ("p226_001", "p287_004", "p227_001"), "testset_wav": ("p232_001", "p257_002")}
    for folder, found in names.items():
        for name in found:
            for kind in ("clean", "noisy"):
                write(tmp_path / f"vb/{kind}_{folder}_16k/{name}.wav")
                write(tmp_path / f"vb/{kind}_{folder}/{name}.wav", rate=48_000)  # 16 kHz is taken
    prepare_voicebank_demand(tmp_path / "vb", tmp_path / "out", any_count=True)
    splits = load_set(tmp_path / "out/se", "se").splits
    assert {split: [u.id for u in found] for split, found in splits.items()} == {
        "train": ["p227_001"],
        "dev": ["p226_001", "p287_004"],
        "test": ["p232_001", "p257_002"],
    }
    one = splits["test"][0]
    assert Path(one.audio).parent.name == "noisy_testset_wav_16k" and one.speaker == "p232" and one.seconds == 0.1
    assert one.sources == (str(tmp_path / "vb/clean_testset_wav_16k/p232_001.wav"),)


def test_published_counts():
    assert COUNTS["train"] + COUNTS["dev"] == 11_572 and COUNTS["test"] == 824

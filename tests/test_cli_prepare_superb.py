"""The verbs of the published sets: what they are called, what they say, and how they end."""

import json

import numpy as np
import pytest
import soundfile

from speechssl.cli import main
from speechssl.cli.prepare import VERBS_OF_PREPARE_SUPERB as VERBS

FOLDERS = ("clean_trainset_28spk_wav", "noisy_trainset_28spk_wav", "clean_testset_wav", "noisy_testset_wav")


@pytest.fixture
def source(tmp_path):
    for folder in FOLDERS:
        (tmp_path / "vb" / folder).mkdir(parents=True)
        for name in ("p226_001", "p227_001"):
            soundfile.write(tmp_path / f"vb/{folder}/{name}.wav", np.full(1_600, 0.1), 16_000)
    return tmp_path / "vb"


@pytest.mark.parametrize("verb", VERBS)
def test_another_folder_is_one_sentence_and_exit_code_2(verb, tmp_path, capsys):
    needed = {"librispeech": ["--tasks", "asr"], "libri2mix": ["--tasks", "ss"]}.get(verb, [])
    assert main(["prepare", verb, str(tmp_path), str(tmp_path / "out"), *needed]) == 2
    said = capsys.readouterr().err
    assert "does not exist; give the folder" in said and said.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_the_layout_and_where_it_comes_from(verb, capsys):
    with pytest.raises(SystemExit):
        main(["prepare", verb, "--help"])
    said = capsys.readouterr().out
    assert "--any-count" in said and (".wav" in said or ".flac" in said)


def test_a_part_is_taken_with_a_warning(source, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["prepare", "voicebank-demand", str(source), str(out)]) == 2
    assert "has 1 train and not 10,802, 1 dev and not 770, 2 test and not 824 as published" in capsys.readouterr().err
    assert main(["prepare", "voicebank-demand", str(source), str(out), "--any-count"]) == 0
    printed = capsys.readouterr()
    assert "warning: " in printed.err and f"{out / 'se'}: 1 train, 1 dev, 2 test recordings" in printed.out
    assert json.loads((out / "se/card.json").read_text())["any_count"] is True


def test_flags_reach_their_function(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr("speechssl.data.superb.librispeech.prepare_librispeech", lambda *_, **given: seen.update(given) or {})
    assert main(["prepare", "librispeech", "a", "b", "--lexicon", "one.txt", "two.txt", "--tasks", "pr"]) == 0
    assert [str(path) for path in seen["lexicons"]] == ["one.txt", "two.txt"] and seen["tasks"] == ["pr"]
    assert seen["any_count"] is False

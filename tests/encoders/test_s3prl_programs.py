"""What is put in place for s3prl's programs: audio, sox's effects, modules that are wanted for one name."""

import argparse
import importlib
import subprocess
import sys
import types

import numpy as np
import pytest
import soundfile
import torch

from speechssl.encoders import s3prl as programs
from speechssl.errors import InputError

SIMPLE = [["channels", "1"], ["rate", "16000"], ["gain", "-6.0"]]


@pytest.fixture
def stereo(tmp_path):
    """A second at 8 kHz: 440 Hz in one channel, twice as loud as in the other."""
    tone = 0.4 * np.sin(2 * np.pi * 440 * np.arange(8_000) / 8_000)
    soundfile.write(tmp_path / "a.wav", np.stack([tone, tone / 2], 1), 8_000, subtype="FLOAT")
    return tmp_path / "a.wav"


def test_a_file_is_loaded_as_torchaudio_loads_it(stereo):
    whole, rate = programs.load(str(stereo))
    assert (whole.shape, whole.dtype, rate) == ((2, 8_000), torch.float32, 8_000)
    assert torch.allclose(whole[0], 2 * whole[1])
    assert torch.equal(programs.load(stereo, 100, 50)[0], whole[:, 100:150])
    with pytest.raises(InputError, match="does not exist"):
        programs.load(stereo.with_name("b.wav"))


def test_channels_rate_and_gain_are_what_they_say(stereo):
    found, rate = programs.apply_effects_file(str(stereo), SIMPLE)
    expected = 10 ** (-6 / 20) * 0.3 * torch.sin(2 * torch.pi * 440 * torch.arange(16_000) / 16_000)
    assert (found.shape, rate, found.dtype) == ((1, 16_000), 16_000, torch.float32)
    assert (found[0] - expected)[500:-500].abs().max() < 2e-3  # edges ring
    same, _ = programs.apply_effects_tensor(*programs.load(stereo), SIMPLE)
    assert torch.equal(found, same)


def test_other_effects_go_through_sox(stereo, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(InputError, match="the effect silence, which needs the program sox"):
        programs.apply_effects_file(stereo, [["silence", "1", "0.1", "0.1%"]])
    asked = []

    def sox(command, input, capture_output):
        asked.append(command)
        return types.SimpleNamespace(returncode=0, stdout=input[: 8 * 100], stderr=b"")  # 100 frames of two float32

    monkeypatch.setattr(programs.shutil, "which", lambda _: "sox")
    monkeypatch.setattr(programs.subprocess, "run", sox)
    found, rate = programs.apply_effects_file(stereo, [["silence", "1", "0.1", "0.1%"]])
    assert rate == 8_000 and torch.equal(found, programs.load(stereo)[0][:, :100])
    raw = "-t f32 -r 8000 -c 2 -".split()
    assert asked == [["sox", *raw, *raw, "silence", "1", "0.1", "0.1%"]]
    failed = types.SimpleNamespace(returncode=1, stdout=b"", stderr=b"no such effect\n")
    monkeypatch.setattr(programs.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(InputError, match=r"sox cannot apply odd \(no such effect\)"):
        programs.apply_effects_file(stereo, [["odd"]])


def test_a_module_stands_in_only_where_there_is_none(monkeypatch):
    programs._stand_in_module("numpy.fake", "name", 1)
    assert "numpy.fake" not in sys.modules
    for name in ("not_there_at_all", "not_there_at_all.data", "not_there_at_all.data.sampler"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        del sys.modules[name]
    for _ in range(2):
        programs._stand_in_module("not_there_at_all.data.sampler", "Wrapper", programs._not_there("not_there_at_all", "Wrapper"))
    found = importlib.import_module("not_there_at_all.data.sampler")
    with pytest.raises(InputError, match="Wrapper of the package not_there_at_all; pip install not_there_at_all"):
        found.Wrapper()


@pytest.mark.parametrize(
    ("a", "b", "distance"), [("kitten", "sitting", 3), ([1, 2, 3], [2, 3], 1), (["a b", "c"], [], 2), ("", "", 0)]
)
def test_the_distance_is_levenshteins(a, b, distance):
    assert programs._distance(a, b) == distance


def test_s3prls_experts_start_and_its_checkpoints_are_read(tmp_path):
    """In another process: what is put in place stays there."""
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    pytest.importorskip("pandas", reason="s3prl's experts read their lists with pandas")
    torch.save({"Args": argparse.Namespace(upstream="speechssl"), "Step": 1}, tmp_path / "states.ckpt")
    code = f"""
import importlib, torch
from speechssl.encoders.s3prl_upstream import register
from speechssl.encoders.s3prl import stand_in_for_programs
register()
for _ in range(2):
    stand_in_for_programs()
for name in "ctc asr speech_commands voxceleb1 sv_voxceleb1 fluent_commands emotion".split():
    importlib.import_module(f"s3prl.downstream.{{name}}.expert").DownstreamExpert
from s3prl.downstream.ctc.metric import per
assert per(hypothesis=["a b c"], groundtruth=["a c"]) == 0.5
assert torch.load({str(tmp_path / "states.ckpt")!r})["Args"].upstream == "speechssl"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]

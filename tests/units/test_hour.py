"""An hour of audio in one file: every frame, in constant memory."""

import json
import os
import subprocess
import sys

import numpy as np
import soundfile

SCRIPT = """
import json, sys
from pathlib import Path
from speechssl.cli import main
from speechssl.units.storage import load_units
import torch, transformers, torchaudio, pyarrow  # what the verb imports anyway
torch.set_num_threads(1)
peak = lambda: next(int(x.split()[1]) * 1024 for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
before, code = peak(), main(["units", "extract", *sys.argv[1:5], "--workers", "1"])
print(json.dumps({"code": code, "bytes": peak() - before, "frames": [u.frames for u in load_units(Path(sys.argv[4])).values()]}))
"""


def test_an_hour_loses_no_frame_and_takes_little_memory(hubert_folder, codebook_for, encoder, tmp_path):
    rng = np.random.default_rng(0)
    samples = 3_600 * 16_000 + 123
    (tmp_path / "audio").mkdir()
    with soundfile.SoundFile(tmp_path / "audio/hour.flac", "w", 16_000, 1) as file:
        minute = rng.uniform(-0.3, 0.3, 60 * 16_000)
        for _ in range(60):
            file.write(minute)
        file.write(minute[:123])
    codebook_for(encoder).save(tmp_path / "book.safetensors")
    arguments = [tmp_path / "audio", hubert_folder("layer"), tmp_path / "book.safetensors", tmp_path / "units"]
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["code"] == 0 and found["frames"] == [encoder.grid.frames(samples)] == [180_000]
    held = samples * 4  # the samples, once as they are and once normalised
    assert found["bytes"] < 2.5 * held + 300e6

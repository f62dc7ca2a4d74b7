"""A command that is run in this process, and the pipeline on almost nothing.

`make faults` sets FAULTS: more kills of every stage, and a node of Ray that is killed.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from speechssl.cli import main

from ..files import write_corpus

THOROUGH = bool(os.environ.get("FAULTS"))


@dataclass(frozen=True)
class Said:
    """What a command came to. sentence: what stands on stderr."""

    code: int
    sentence: str


def command(*arguments):
    """Run a verb in this process, quietly. What goes through as an exception would be a traceback:
    it is none of the answers."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*map(str, arguments), "-q"])
    return Said(code, err.getvalue())


def check_refusal(said, *names):
    """Exit code 2 after one sentence that has these names."""
    lines = said.sentence.splitlines()
    assert said.code == 2 and len(lines) == 1 and lines[0].startswith("speechssl: "), said
    assert len(lines[0]) < 1_200 and all(name in lines[0] for name in names), (names, said)


@dataclass(frozen=True)
class Stages:
    """The pipeline on almost nothing: an encoder, its units, a reader of them, its scores.

    encoder, text: folders of checkpoints with random weights.
    """

    corpus: Path
    encoder: Path
    text: Path

    def commands(self, root, steps=4):
        """The verb of every stage, whose folder lies in `root`."""
        models, corpus = root / "models", self.corpus
        units = f"{models}/encoder {models}/units.safetensors"
        few = f"--steps {steps} --save-every 2 --warmup-steps 1 --batch 2 --precision fp32"
        short = "--window 32 --stride 16 --answer 8 --max-question 32 --dropout"
        extract = f"units extract {corpus} {units} {root}/units --shard-size 1 --workers 1 --split"
        qa = f"evaluate qa {corpus} {root}/qa --models {models} --systems dual --split test"
        calls = {
            "convert": f"convert {self.encoder} {models}/encoder --to huggingface",
            "units fit": f"units fit {corpus} {units} --layer 1 --clusters 8 --starts 1",
            "units extract": f"{extract} train",
            "units extract, test": f"{extract} test",
            "train dual": f"train dual {corpus} {root}/units {models}/dual "
            f"--text-encoder {self.text} {few} {short}",
            "evaluate qa": f"{qa} --conditions clean pink@5 --workers 1",
        }
        return {stage: call.split() for stage, call in calls.items()}


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """A folder: a corpus of two splits of three passages (`corpus`), recordings in a folder
    (`audio`), a codebook of MFCCs."""
    import shutil

    root = tmp_path_factory.mktemp("workshop")
    words = [["a", 0.0, 0.1], ["red", 0.1, 0.3], ["boat", 0.3, 0.5]]
    answer = {"text": "boat", "start": 0.3, "end": 0.5, "char_start": 6}
    for split in ("train", "test"):
        passages, questions = [], []
        for i in range(3):
            who = {"speaker": f"{split}{i}"}
            said = {"id": f"p{i}", "seconds": 0.5, "text": "a red boat", "words": words}
            asked = {"id": f"q{i}", "seconds": 0.3, "text": "what is red", "passage": f"p{i}"}
            passages.append(said | who)
            questions.append(asked | who | {"answers": [answer]})
        write_corpus(root / "corpus", split, passages=passages, questions=questions)
    (root / "corpus/card.json").write_text('{"corpus": "invented", "licence": "CC0"}')
    shutil.copytree(root / "corpus/train/audio", root / "audio")
    book = root / "mfcc.safetensors"
    fitted = f"units fit {root}/audio mfcc {book} --clusters 4 --starts 1"
    assert command(*fitted.split()).code == 0
    return root


@pytest.fixture(scope="session")
def stages(workshop, hubert_folder, checkpoint):
    return Stages(workshop / "corpus", hubert_folder("layer"), checkpoint("BERT"))


@pytest.fixture(scope="session")
def chain(stages, tmp_path_factory):
    """A folder in which all stages have been done."""
    root = tmp_path_factory.mktemp("chain")
    for arguments in stages.commands(root).values():
        said = command(*arguments)
        assert said.code == 0, said
    return root

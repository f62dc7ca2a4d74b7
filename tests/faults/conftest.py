"""A verb that is run in this process, and the pipeline on almost nothing.

`make faults` sets FAULTS: more kills of every stage, and a node of Ray that is killed.
"""

import io
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest

from speechssl.cli import main

from ..files import write_corpus

THOROUGH = bool(os.environ.get("FAULTS"))


class Outcome(NamedTuple):
    """This is what a verb comes to."""

    code: int
    stderr: str


def run_verb(*arguments):
    """Run a verb in this process, quietly. An exception is not caught, for a user would see a
    traceback."""
    err = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(err):
        code = main([*map(str, arguments), "-q"])
    return Outcome(code, err.getvalue())


def check_refusal(outcome, *names):
    """Assert that a verb ended with exit code 2 and one sentence that has these names."""
    assert outcome.code == 2, outcome
    (sentence,) = outcome.stderr.splitlines()
    assert sentence.startswith("speechssl: ")
    assert len(sentence) < 1_200
    for name in names:
        assert name in sentence


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """A folder with a corpus of two splits of three passages (corpus), a folder of recordings
    (audio), and a codebook of MFCCs (mfcc.safetensors)."""
    root = tmp_path_factory.mktemp("workshop")
    words = [["a", 0.0, 0.1], ["red", 0.1, 0.3], ["boat", 0.3, 0.5]]
    answer = {"text": "boat", "start": 0.3, "end": 0.5, "char_start": 6}
    for split in ("train", "test"):
        passages, questions = [], []
        for i in range(3):
            speaker = {"speaker": f"{split}{i}"}
            passage = {"id": f"p{i}", "seconds": 0.5, "text": "a red boat", "words": words}
            question = {"id": f"q{i}", "seconds": 0.3, "text": "what is red", "passage": f"p{i}"}
            passages.append(passage | speaker)
            questions.append(question | speaker | {"answers": [answer]})
        write_corpus(root / "corpus", split, passages=passages, questions=questions)
    (root / "corpus/card.json").write_text('{"corpus": "invented", "licence": "CC0"}')
    shutil.copytree(root / "corpus/train/audio", root / "audio")
    book = root / "mfcc.safetensors"
    fit = f"units fit {root}/audio mfcc {book} --clusters 4 --starts 1"
    assert run_verb(*fit.split()).code == 0
    return root


@pytest.fixture(scope="session")
def stages(workshop, hubert_folder, checkpoint):
    """A function (folder, training steps) -> the arguments of every stage, which writes below the
    folder: an encoder, its units, a reader of them, its scores."""
    corpus, encoder, text = workshop / "corpus", hubert_folder("layer"), checkpoint("BERT")

    def make(root, steps=4):
        models = root / "models"
        units = f"{models}/encoder {models}/units.safetensors"
        few = f"--steps {steps} --save-every 2 --warmup-steps 1 --batch 2 --precision fp32"
        short = "--window 32 --stride 16 --answer 8 --max-question 32 --dropout"
        extract = f"units extract {corpus} {units} {root}/units --shard-size 1 --workers 1 --split"
        qa = f"evaluate qa {corpus} {root}/qa --models {models} --systems dual --split test"
        calls = {
            "convert": f"convert {encoder} {models}/encoder --to huggingface",
            "units fit": f"units fit {corpus} {units} --layer 1 --clusters 8 --starts 1",
            "units extract": f"{extract} train",
            "units extract, test": f"{extract} test",
            "train dual": f"train dual {corpus} {root}/units {models}/dual "
            f"--text-encoder {text} {few} {short}",
            "evaluate qa": f"{qa} --conditions clean pink@5 --workers 1",
        }
        return {stage: call.split() for stage, call in calls.items()}

    return make


@pytest.fixture(scope="session")
def chain(stages, tmp_path_factory):
    """A folder in which all stages have been done."""
    root = tmp_path_factory.mktemp("chain")
    for arguments in stages(root).values():
        outcome = run_verb(*arguments)
        assert outcome.code == 0, outcome
    return root

"""A command that is run in this process, and the pipeline on almost nothing.

`make faults` sets FAULTS: more kills of every stage, and a node of Ray that is killed.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from speechssl.cli import main

THOROUGH = bool(os.environ.get("FAULTS"))


@dataclass(frozen=True)
class Said:
    """What a command came to. sentence: what stands on stderr."""

    code: int
    sentence: str


def command(*arguments: object) -> Said:
    """Run a verb in this process, quietly. What goes through as an exception would be a traceback:
    it is none of the answers."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*map(str, arguments), "-q"])
    return Said(code, err.getvalue())


def check_refusal(said: Said, *names: str) -> None:
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

    def commands(self, root: Path, steps: int = 4) -> dict[str, tuple[object, ...]]:
        """The verb of every stage, whose folder lies in `root`."""
        models = root / "models"
        book, encoder = models / "units.safetensors", models / "encoder"
        few = (
            "--steps",
            steps,
            "--save-every",
            2,
            "--batch",
            2,
            "--precision",
            "fp32",
            "--warmup-steps",
            1,
        )
        short = ("--window", 32, "--stride", 16, "--answer", 8, "--max-question", 32)
        extract = (
            "units",
            "extract",
            self.corpus,
            encoder,
            book,
            root / "units",
            "--shard-size",
            1,
            "--workers",
            1,
            "--split",
        )
        return {
            "convert": ("convert", self.encoder, encoder, "--to", "huggingface"),
            "units fit": (
                "units",
                "fit",
                self.corpus,
                encoder,
                book,
                "--layer",
                1,
                "--clusters",
                8,
                "--starts",
                1,
            ),
            "units extract": (*extract, "train"),
            "units extract, test": (*extract, "test"),
            "train dual": (
                *(
                    "train",
                    "dual",
                    self.corpus,
                    root / "units",
                    models / "dual",
                    "--text-encoder",
                    self.text,
                ),
                *(*few, *short, "--dropout"),
            ),
            "evaluate qa": (
                *(
                    "evaluate",
                    "qa",
                    self.corpus,
                    root / "qa",
                    "--models",
                    models,
                    "--systems",
                    "dual",
                    "--split",
                    "test",
                ),
                *("--conditions", "clean", "pink@5", "--workers", 1),
            ),
        }


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder: a corpus of two splits of three passages (`corpus`), recordings in a folder
    (`audio`), a codebook of MFCCs."""
    import numpy as np

    from speechssl.audio import write_flac

    root, rng = tmp_path_factory.mktemp("workshop"), np.random.default_rng(0)
    for split in ("train", "test"):
        passages, questions = [], []
        for i in range(3):
            common = {"speaker": f"{split}{i}", "language": "en"}
            passages.append(
                {
                    "id": f"p{i}",
                    "audio": f"{split}/audio/p{i}.flac",
                    "seconds": 0.5,
                    "text": "a red boat",
                }
                | common
            )
            passages[-1] |= {
                "words": [["a", 0.0, 0.1], ["red", 0.1, 0.3], ["boat", 0.3, 0.5]],
                "phones": [["AA", 0.0, 0.5]],
            }
            asked = {
                "id": f"q{i}",
                "audio": f"{split}/audio/q{i}.flac",
                "seconds": 0.3,
                "text": "what is red",
                "passage": f"p{i}",
            }
            questions.append(
                asked
                | common
                | {"answers": [{"text": "boat", "start": 0.3, "end": 0.5, "char_start": 6}]}
            )
        for record in (*passages, *questions):
            samples = rng.uniform(-0.5, 0.5, round(record["seconds"] * 16_000))
            for path in (
                root / "corpus" / record["audio"],
                root / "audio" / f"{record['id']}.flac",
            ):
                write_flac(path, samples)
        for name, records in (("passages", passages), ("questions", questions)):
            (root / f"corpus/{split}/{name}.jsonl").write_text(
                "".join(json.dumps(r) + "\n" for r in records)
            )
    (root / "corpus/card.json").write_text(json.dumps({"corpus": "invented", "licence": "CC0"}))
    assert (
        command(
            "units",
            "fit",
            root / "audio",
            "mfcc",
            root / "mfcc.safetensors",
            "--clusters",
            4,
            "--starts",
            1,
        ).code
        == 0
    )
    return root


@pytest.fixture(scope="session")
def stages(
    workshop: Path, hubert_folder: Callable[[str], Path], checkpoint: Callable[[str], Path]
) -> Stages:
    return Stages(workshop / "corpus", hubert_folder("layer"), checkpoint("BERT"))


@pytest.fixture(scope="session")
def chain(stages: Stages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all stages have been done."""
    root = tmp_path_factory.mktemp("chain")
    for arguments in stages.commands(root).values():
        said = command(*arguments)
        assert said.code == 0, said
    return root

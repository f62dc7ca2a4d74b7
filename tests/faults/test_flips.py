"""One flipped bit in an artefact: whoever reads it names the file, makes it again, or is not
concerned."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch

from pretrain import PretrainText, pretrain_text
from speechssl.cli import main
from speechssl.data.files import list_recordings, write_joined
from speechssl.data.records import data_hash
from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel, load_reader, save_reader
from speechssl.encoders.load import hash_weights, load_checkpoint, load_encoder
from speechssl.encoders.store import FeatureStore
from speechssl.errors import InputError
from speechssl.io import read_json, write_json
from speechssl.superb.data import CacheOptions, cache_states
from speechssl.textlm import Shift, load_shift, load_text_encoder

from .conftest import CASES, Stages, command

pytestmark = pytest.mark.slow

# a folder with the damaged file -> what was said of it; "" where it was read as it was written
Read = Callable[[Path], str]


@pytest.fixture(scope="module")
def whole(
    chain: Path, stages: Stages, workshop: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """All artefacts of the chain, and a corpus whose card names its manifests."""
    root: Path = tmp_path_factory.mktemp("artefacts") / "all"
    shutil.copytree(chain, root)
    shutil.copytree(workshop / "corpus", root / "corpus")
    hashes = {split: data_hash(root / "corpus", split) for split in ("train", "test")}
    write_json(
        root / "corpus/card.json", {"corpus": "invented", "licence": "CC0", "manifests": hashes}
    )
    recordings = list_recordings(root / "corpus", "test")
    for name, pooled in (("means", True), ("frames", False)):
        options = CacheOptions(
            pooled=pooled, precision="float32" if pooled else "bfloat16", shard_mb=0.02
        )
        cache_states(load_encoder(root / "models/encoder"), recordings, root / name, options)
    grid = (
        f"evaluate robustness {root}/grid --encoders a={root}/models b={root}/models --tasks "
        f"units={workshop}/audio"
    )
    grid += " --seen pink --unseen gaussian --snr 5 --workers 1"
    for arguments in (grid.split(), ["compare", root / "qa", "--out", root / "compared"]):
        assert command(*arguments).code == 0
    Shift(1, torch.arange(32.0), {"method": "zero-mean"}).save(root / "shift.safetensors")
    # readers and encoders of words, what is written for others, and pieces that were joined
    encoder, tokenizer = load_text_encoder(str(stages.text))
    tokenizer.save_pretrained(root / "words")
    save_reader(
        root / "words",
        SpanModel(encoder, encoder.get_input_embeddings()),
        Layout(2, 3, 0),
        {"what": "text QA"},
    )
    pretrain_text(PretrainText(out=root / "text", data="none", start=str(stages.text), length=16))
    assert (
        command("convert", root / "models/encoder", root / "converted.pt", "--to", "fairseq").code
        == 0
    )
    write_joined(sorted((root / "corpus/test/audio").glob("q*.flac")), root / "joined.flac")
    return root


def readers(stages: Stages, chain: Path) -> dict[str, Read]:
    """Who reads each kind of artefact."""
    expected: dict[str, Any] = {}
    values: dict[str, Any] = {}

    def loud(*arguments: object) -> str:
        """With what is set aside and reported."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(list(map(str, arguments)))
        # without bars and losses
        notes = [
            line for line in err.getvalue().splitlines() if "|" not in line and line[:1] != "{"
        ]
        return "\n".join(notes) if code in (0, 2) else f"unexpected code {code}"

    def said_by(read: Callable[[], object]) -> str:
        err = io.StringIO()
        with redirect_stderr(err):
            try:
                read()
            except InputError as error:
                return str(error)
        return err.getvalue()

    def extract(root: Path) -> str:
        models = root / "models"
        source = (
            "units",
            "extract",
            root / "corpus",
            models / "encoder",
            models / "units.safetensors",
            root / "new",
        )
        found = loud(*source, "--split", "test", "--shard-size", 1, "--workers", 1)
        if not found:  # nothing was said: then the units are what they were
            for part in (chain / "units/test").glob("part-*"):
                if (root / "new/test" / part.name).read_bytes() != part.read_bytes():
                    return "UNNOTICED: other units"
        return found

    def train(root: Path) -> str:
        arguments = list(stages.commands(root)["train dual"])
        arguments[2], arguments[4] = root / "corpus", root / "new"
        return loud(*arguments)

    def resume(root: Path) -> str:
        arguments = list(stages.commands(root, steps=6)["train dual"])
        arguments[2] = root / "corpus"
        found = loud(*arguments)
        if not found:
            weights = (root / "models/dual/model.safetensors").read_bytes()
            # the first goes on from what is whole
            if weights != expected.setdefault("resumed", weights):
                return "UNNOTICED: other weights"
        return found

    def evaluate(root: Path) -> str:
        arguments = list(stages.commands(root)["evaluate qa"])
        arguments[2], arguments[3] = root / "corpus", root / "new"
        found = loud(*arguments)
        if not found:
            for name in ("clean", "pink-5-dB"):
                new, old = (
                    json.loads((at / f"predictions/dual/{name}.json").read_text())
                    for at in (root / "new", chain / "qa")
                )
                if new["answers"] != old["answers"]:
                    return "UNNOTICED: other answers"
        return found

    def again(root: Path) -> str:
        arguments = list(stages.commands(root)["evaluate qa"])
        arguments[2] = root / "corpus"
        return loud(*arguments)

    def states(name: str) -> Read:
        def read(root: Path) -> str:
            try:
                found = FeatureStore.load(root / name)
                values = {key: found[key] for key in found.places}
            except InputError as error:
                return str(error)
            wanted = expected.setdefault(name, values)  # the first reads what is whole
            return (
                ""
                if all(torch.equal(values[key], wanted[key]) for key in wanted)
                else ("UNNOTICED: other states")
            )

        return read

    def same(what: str, value: Any) -> str:
        # the first is what is whole
        return "" if expected.setdefault(what, value) == value else f"UNNOTICED: another {what}"

    def report(name: str) -> Read:
        return lambda root: (
            loud("report", root / name) or same("page", (root / name / "report.html").read_text())
        )

    return {
        "corpus/test/passages.jsonl": extract,
        "corpus/test/audio/p0.flac": extract,
        "models/units.safetensors": extract,
        "models/units.card.json": extract,
        "models/encoder/model.safetensors": extract,
        "models/encoder/config.json": extract,
        "models/encoder/preprocessor_config.json": extract,
        "models/encoder/card.json": extract,
        "models/dual/model.safetensors": evaluate,
        "models/dual/config.json": evaluate,
        "models/dual/card.json": evaluate,
        "models/dual/made_from.json": resume,
        "models/dual/checkpoints/checkpoint-4/model.safetensors": resume,
        "models/dual/checkpoints/checkpoint-4/optimizer.pt": resume,
        "models/dual/checkpoints/checkpoint-4/trainer_state.json": resume,
        "models/dual/checkpoints/checkpoint-4/rng_state.pth": resume,
        "models/dual/checkpoints/checkpoint-4/tally-0.json": resume,
        "models/dual/checkpoints/checkpoint-4/sums.json": resume,
        "models/dual/checkpoints/log.jsonl": resume,
        "units/train/part-00001.parquet": train,
        "units/train/_card.json": train,
        "means/shard-00000.safetensors": states("means"),
        "frames/shard-00000.safetensors": states("frames"),
        "frames/card.json": states("frames"),
        "qa/predictions/dual/clean.json": again,
        "qa/scores/dual/clean.jsonl": lambda root: loud(
            "compare", root / "qa", "--out", root / "new"
        ),
        "qa/scores/dual/clean.card.json": lambda root: loud(
            "compare", root / "qa", "--out", root / "new"
        ),
        "qa/results.jsonl": lambda root: loud(
            "report", root / "qa", root / "corpus", "--models", root / "models"
        ),
        "grid/degradation.json": report("grid"),
        "compared/compare.json": lambda root: (
            said_by(lambda: values.update(read_json(root / "compared/compare.json")))
            or same("comparison", dict(values))
        ),
        **{
            f"words/{name}": lambda root: said_by(lambda: load_reader(root / "words"))
            for name in ("tokenizer.json", "tokenizer_config.json")
        },
        **{
            f"text/encoder/{name}": lambda root: said_by(
                lambda: load_text_encoder(str(root / "text/encoder"))
            )
            for name in (
                "model.safetensors",
                "config.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "mlm_head/head.safetensors",
            )
        },
        "converted.pt": lambda root: (
            said_by(
                lambda: values.update(pt=hash_weights(load_checkpoint(root / "converted.pt").model))
            )
            or same("weights", values.get("pt"))
        ),
        "joined.json": lambda root: said_by(
            lambda: write_joined(
                sorted((root / "corpus/test/audio").glob("q*.flac")), root / "joined.flac"
            )
        ),
        "shift.safetensors": lambda root: said_by(lambda: load_shift(root / "shift.safetensors")),
    }


NAMES = tuple(readers(None, Path()))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_is_noticed_by_name(
    name: str,
    whole: Path,
    stages: Stages,
    chain: Path,
    tmp_path: Path,
    tell: Callable[[str, Sequence[str]], None],
) -> None:
    read, chance, happened = readers(stages, chain)[name], random.Random(name), list[str]()
    path = Path(name)
    root = tmp_path / "all"
    content = (whole / name).read_bytes()
    for number in range(-1, (CASES // 1_000 or 2)):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(whole, root)
        if number >= 0:
            at = chance.randrange(len(content))
            damaged = bytearray(content)
            damaged[at] ^= 1 << chance.randrange(8)
            (root / name).write_bytes(damaged)
        said = read(root)
        if number < 0:  # whole
            assert said == "", said
        elif not said:
            happened.append("read as it was written")
        elif path.name in said or re.search(rf"{path.parent}(?![\w/])", said):
            # the file or its folder
            happened.append("made again" if "made again" in said else "named")
        else:
            happened.append(f"UNNOTICED at byte {at} of {len(content)}: {said[-400:]}")
    tell(f"flipped bit: {name}", happened)
    assert not [x for x in happened if "UNNOTICED" in x or "unexpected" in x], happened

"""Export an encoder for s3prl's own runner: a folder with the encoder, the settings of every task
of SUPERB, and a script.

OUT/encoder/       the encoder in Hugging Face's format; s3prl's upstream `speechssl` takes it, and
                   its `hf_hubert_custom` where that fits
OUT/configs/       a config file for each task, for the runner's -c (s3prl's package has none)
OUT/run.sh         the command lines
OUT/README.md, OUT/card.json

The folder `s3prl/` beside this file has the settings of the tasks (tasks.yaml) and the Jinja
templates of script and README. The settings are s3prl's own. Its package also leaves out word
lists, lists of recordings and the code of PR and SF, for which a clone of s3prl is needed. s3prl
counts a step after its accumulation, as we do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import yaml

from speechssl.artifacts import write_json, write_text
from speechssl.data.audio_snips import VOICES as SNIPS_VOICES
from speechssl.encoders.export import convert
from speechssl.encoders.load import load_checkpoint
from speechssl.errors import list_packages
from speechssl.superb.data import HeadSettings
from speechssl.superb.options import SuperbExport
from speechssl.superb.tasks import TASKS

TEMPLATES = Path(__file__).parent / "s3prl"
HOP = 320  # samples; s3prl's hf_* upstreams assume this hop for every checkpoint
# s3prl's upstreams that read transformers' folders
NATIVE = {"hubert": "hf_hubert_custom", "wav2vec2": "hf_wav2vec2_custom"}


def export_encoder(o: SuperbExport) -> dict[str, Any]:
    """Write the folder, its card last, print the command to run in it, and return the card.

    The encoder is checked as `convert` checks it: the same weights to the bit, every layer within
    1e-5. Where the folder has the same weights already, only missing files are written: a script
    that was changed stays as it is.
    Raises InputError where the encoder has no weights to export or cannot be loaded.
    """
    out = o.out
    converted = convert(o.encoder, out / "encoder", "huggingface")
    config: Any = load_checkpoint(out / "encoder").model.config
    hop = math.prod(config.conv_stride)
    upstreams = ["speechssl"]
    if config.model_type in NATIVE and hop == HOP:
        upstreams.append(NATIVE[config.model_type])
    name = "/".join(Path(o.encoder).parts[-2:])
    card = {
        "what": "encoder for s3prl's runner",
        "made_from": {"name": name, **converted["made_from"]},
        "encoder": {
            "model_type": config.model_type,
            "layers": config.num_hidden_layers,
            "width": config.hidden_size,
            "hop": hop,
            "normalise": converted["normalise"],
        },
        "upstreams": upstreams,
        "s3prl": "0.4.18",
    }
    texts = render_templates(card)
    for task in RUNNER_TASKS:
        texts[f"configs/{task.name}.yaml"] = yaml.safe_dump(
            task.make_config(), sort_keys=False, default_flow_style=None, width=120
        )
    for file, text in texts.items():
        if not (out / file).exists():
            write_text(out / file, text)
    (out / "run.sh").chmod(0o755)
    write_json(out / "card.json", card)
    print(f"{out}: {name} for s3prl's upstreams {', '.join(card['upstreams'])}")
    print(f"bash {out}/run.sh {'|'.join(task.name for task in RUNNER_TASKS)}")
    return card


def render_templates(card: Mapping[str, Any]) -> dict[str, str]:
    """Render run.sh and README.md. card: the card of the folder."""
    variables = {
        "card": card,
        "native": next(iter(card["upstreams"][1:]), None),
        "tasks": RUNNER_TASKS,
        "names": "|".join(task.name for task in RUNNER_TASKS),
        "packages": " ".join(f"'{package}'" for package in list_packages("s3prl")),
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    texts = {}
    for name in ("run.sh", "README.md"):
        texts[name] = environment.get_template(f"{name}.jinja").render(variables)
    return texts


@dataclass(frozen=True)
class RunnerTask:
    """A task of the runner is an entry of tasks.yaml, where the fields are explained."""

    name: str  # the task's name in this package
    title: str
    downstream: str
    expert: Mapping[str, Any]
    paths: Mapping[str, str | list[str]]
    accumulation: int = 1
    log: int = 100
    save: int = 1000
    keep: int = 1
    evaluated: Sequence[str] = ("dev", "test")
    best: str = "dev-best.ckpt"
    test: str = "test"
    packages: Sequence[str] = field(default_factory=list)
    clone: bool = False
    specaug: Mapping[str, Any] = field(default_factory=dict)
    folds: Sequence[str] = ()

    @property
    def settings(self) -> HeadSettings | None:
        """Return the published settings; None where nothing is trained."""
        return TASKS[self.name].published if self.name in TASKS else None

    @property
    def training(self) -> str:
        """Describe the training for the README."""
        s = self.settings
        if s is None:
            return "nothing is trained; a run for every layer, the best on dev counts"
        batch = f"{s.batch // self.accumulation} x {self.accumulation}"
        return f"{s.optimiser} {s.learning_rate:g}, {s.steps:,} steps of {batch}, clip {s.clip:g}"

    @property
    def overrides(self) -> str:
        """Return the paths for the runner's -o, which evaluates values as Python."""
        overrides = []
        for key, value in self.paths.items():
            text = repr(value) if isinstance(value, str) else f"[{','.join(map(repr, value))}]"
            overrides.append(f"config.downstream_expert.{key}={text}")
        return ",,".join(overrides)

    @property
    def variables(self) -> list[str]:
        """List the shell variables in the paths."""
        return list(dict.fromkeys(re.findall(r"\$([A-Z0-9_]+)", self.overrides)))

    def make_config(self) -> dict[str, Any]:
        """Make the values of the config file, without the paths, which the command line gives."""
        expert = {"downstream_expert": dict(self.expert)}
        if self.settings is None:
            return {"runner": {}} | expert
        runner = {
            "total_steps": self.settings.steps,
            "gradient_clipping": self.settings.clip,
            "gradient_accumulate_steps": self.accumulation,
            "log_step": self.log,
            "eval_step": self.settings.every,
            "save_step": self.save,
            "max_keep": self.keep,
            "eval_dataloaders": list(self.evaluated),
        }
        optimiser = {
            "name": "TorchOptim",
            "torch_optim_name": self.settings.optimiser,
            "lr": self.settings.learning_rate,
        }
        if self.name in ("se", "ss"):  # s3prl's own AdamW, whose decay is 0; torch's is 0.01
            optimiser = {"name": "AdamW", "lr": self.settings.learning_rate}
        masked = {"specaug": dict(self.specaug)} if self.specaug else {}
        return {"runner": runner, "optimizer": optimiser} | masked | expert


def read_tasks() -> tuple[RunnerTask, ...]:
    """Read tasks.yaml, and add the voices of SNIPS that are in each split."""
    tasks = yaml.safe_load((TEMPLATES / "tasks.yaml").read_text(encoding="utf-8"))["tasks"]
    for s3prl_split, split in (("train", "train"), ("valid", "dev"), ("test", "test")):
        tasks["sf"]["expert"]["corpus"][f"{s3prl_split}_speakers"] = list(SNIPS_VOICES[split])
    return tuple(RunnerTask(name, **entry) for name, entry in tasks.items())


RUNNER_TASKS = read_tasks()

"""The options of a verb are the fields of a frozen dataclass, with their help, range and default.

Every verb has a dataclass in the `options.py` of its subpackage. Its docstring is the verb's help;
a field made by `argument` is given by position, one made by `option` by name; `group` includes the
options of another dataclass. `speechssl.cli.parser` makes a command line of the dataclass, and the
verb's function (`speechssl.cli`) takes it. Fields without a help are settings of the Python
interface alone. Nothing here imports torch.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from speechssl.errors import InputError, MissingExtra


@dataclass(frozen=True)
class Range:
    """A range goes from `minimum` to `maximum`; without `zero`, 0 itself is out of range."""

    minimum: float = 0
    maximum: float = sys.float_info.max
    zero: bool = True

    def __str__(self) -> str:
        lower = f"from {self.minimum:g}" if self.zero else f"above {self.minimum:g}"
        return lower if self.maximum == sys.float_info.max else f"{lower} to {self.maximum:g}"

    def __contains__(self, number: float) -> bool:
        return self.minimum <= number <= self.maximum and (self.zero or number != 0)


Count = Annotated[int, Range(1)]  # from 1
Whole = Annotated[int, Range()]  # from 0
Share = Annotated[float, Range(0, 1)]  # from 0 to 1
Portion = Annotated[float, Range(0, 1, zero=False)]  # above 0, to 1
Decay = Annotated[float, Range(0, 0.99999)]  # from 0 to below 1
Amount = Annotated[float, Range(zero=False)]  # above 0
Weight = Annotated[float, Range()]  # from 0
MaybePath = TypeVar("MaybePath", Path, Path | None)
Precision = Literal["fp32", "bf16"]
PrecisionOrAuto = Literal["auto", "fp32", "bf16"]  # for verbs whose card names the one chosen
SnrOver = Literal["active", "signal"]

# Below: parts of help texts that several verbs share.
ENCODERS = "encoder folder, .pt file, hub id, shipped name, torchaudio:NAME, s3prl:NAME or hama"
# encoders that can be trained
CHECKPOINTS = "encoder folder, .pt file, hub id, shipped name or torchaudio:NAME"
SOURCE = (
    "prepared corpus, manifest (.jsonl or .csv with `audio`, .txt or .tsv of paths) or "
    "folder of audio"
)
# Families of text encoders and of QA models of Hugging Face that the tests cover. Others may work;
# they are tried before they are used.
TEXT_FAMILIES = (
    "ALBERT",
    "BERT",
    "BigBird",
    "ByT5",
    "DeBERTa",
    "DeBERTa-v2",
    "DistilBERT",
    "ELECTRA",
    "Longformer",
    "ModernBERT",
    "mT5",
    "RoBERTa",
    "T5",
    "UMT5",
    "XLM-RoBERTa",
)
DEVICE = "cpu, cuda, cuda:N, or auto: a GPU if there is one"
Trained = Literal["all", "frozen", "biases", "adapters", "lora", "weighted-sum", "none"]
TRAINED = (
    "weights of the encoder that are trained: all, frozen (norms and positions alone), biases "
    "(BitFit), adapters (a bottleneck "
    "behind each half of a layer), lora (needs speechssl[peft]), weighted-sum (of its layers), "
    "or none"
)
DRAWN = (
    "drawn at random by --seed; default: a tenth, but at least 400 recordings if there are as many"
)
SNR_OVER = (
    "measure the SNR over the active parts of the speech, or over the whole signal "
    "including pauses (as arXiv 2210.07978)"
)
# dB; the SNR of distorted speech for training is uniform in the range of arXiv 2210.07978 (the
# follow-up of 2203.16104), measured over the signal.
SNR_RANGE = (10.0, 19.0)
# Probability that a crop of an utterance is distorted; the other crops are clean speech. (In that
# paper every crop is distorted.)
DISTORT_PROBABILITY = 0.75
BF16 = {"fp32": False, "bf16": True}  # values of --precision for fields that are a bool


def argument(help: str, optional: bool = False) -> Any:
    """Make a field that is given by position. optional: it may be left out, and is None then."""
    metadata = {"help": help, "positional": True, "nargs": "?" if optional else None}
    return field(metadata=metadata, default=None if optional else MISSING)


def option(
    default: Any,
    help: str,
    *,
    name: str | None = None,
    values: Mapping[str, Any] | None = None,
    metavar: Any = None,
    least: int = 0,
    under: str = "",
) -> Any:
    """Make a field that is given by name.

    default: the default of the field; MISSING where the option is required. name: the name of the
    option, if it differs from that of the field. values: text that can be typed -> value of the
    field. metavar: what the help shows for a value. least: the smallest number of values of a list.
    under: the title in the help below which the option stands.
    """
    metadata = {
        "help": help,
        "name": name,
        "values": values,
        "metavar": metavar,
        "least": least,
        "under": under,
    }
    return field(metadata=metadata, default=default)


def group(default: Any, title: str, without: Sequence[str] = ()) -> Any:
    """Make a field that includes the options of its dataclass, under a title in the help. without:
    names of fields of that dataclass that are not offered as options here."""
    return field(metadata={"title": title, "without": tuple(without)}, default=default)


def list_changes(options: Any, default: Any = None) -> dict[str, Any]:
    """Return the options of a dataclass and of its groups that differ from their defaults, by name.
    default: an instance that has the defaults; None: the defaults are those of the fields."""
    changed: dict[str, Any] = {}
    for f in fields(options):
        value = getattr(options, f.name)
        default_value = f.default if default is None else getattr(default, f.name)
        if "title" in f.metadata:  # a group
            changed |= list_changes(value, default_value)
        elif value != default_value:
            changed[f.name] = value
    return changed


def parse_named(pairs: Iterable[str], what: str) -> dict[str, str]:
    """Parse texts of the form `name=value`. what: the option, such as "--encoders". Raises
    InputError for other texts, and for a name that is given twice."""
    by_name: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (equals and name and value) or name in by_name:
            raise InputError(
                f"{what} {pair} is not NAME=WHERE with a name of its own; write for example "
                "shipped=people-en"
            )
        by_name[name] = value
    return by_name


def parse_noise_folders(pairs: Iterable[str]) -> dict[str, Path]:
    """Parse the values of `--noise NAME=FOLDER ...`: name -> folder."""
    return {name: Path(folder) for name, folder in parse_named(pairs, "--noise").items()}


def refuse_ineffective(given: Mapping[str, Any], rules: Mapping[str, Iterable[str]]) -> None:
    """Raise InputError for options that were given and have no effect without another option.

    given: what `list_changes` returns. rules: name of an option -> names of the options that
    need it.
    """
    for needed, names in rules.items():
        if needed not in given:
            refuse_given(names, given, f"without --{needed.replace('_', '-')}")


def refuse_given(names: Iterable[str], given: Mapping[str, Any], why: str) -> None:
    """Raise InputError where one of these options was given, because it has no effect here.

    given: what `list_changes` returns; why: the end of the message, such as "with mfcc".
    """
    flags = [f"--{name.replace('_', '-')}" for name in names if name in given]
    if flags:
        raise InputError(f"{' and '.join(flags)} would have no effect {why}; leave it out")


def find_shipped(name: MaybePath) -> MaybePath:
    """Find the folder of a model that ships by its name, such as people-en/text-qa; any other path,
    or None, is returned as it is."""
    from speechssl.checkpoints import SHIPPED

    if name is not None and (SHIPPED / name / "card.json").is_file():
        return SHIPPED / name
    return name


@dataclass(frozen=True)
class Adam:
    """The constants of AdamW have the names here that they have in `TrainingOptions`."""

    adam_betas: tuple[float, float]
    adam_epsilon: float
    weight_decay: float


# of HuBERT and wav2vec 2.0: arXiv 2106.07447, section IV-C; 2006.11477; fairseq's configurations
HUBERT = Adam(adam_betas=(0.9, 0.98), adam_epsilon=1e-6, weight_decay=0.01)
# of BERT: arXiv 1810.04805, appendix A.2, and its code, which fine-tunes with the same constants
BERT = Adam(adam_betas=(0.9, 0.999), adam_epsilon=1e-6, weight_decay=0.01)
# of torch and of transformers' Trainer by default. Released DUAL has these constants (its
# baseline.yaml names no others), and so have transformers' run_squad.py, and the ASR of SUPERB
# (s3prl 0.4.18), which is trained by Adam, that is, AdamW without decay.
PLAIN = Adam(adam_betas=(0.9, 0.999), adam_epsilon=1e-8, weight_decay=0.0)


@dataclass(frozen=True)
class TrainingOptions:
    """These options decide the length and the learning rate of a training. A step is one update by
    the optimiser, on one batch, which is divided among the processes."""

    steps: Count = option(
        MISSING,
        "number of optimiser updates; a finished run that had fewer goes on from its last "
        "checkpoint, at the learning rate that "
        "the longer schedule has there (with one --horizon for both: as if it had not stopped)",
    )
    learning_rate: Amount = option(MISSING, "peak learning rate")
    warmup_steps: Whole = option(100, "steps over which the learning rate rises to its peak")
    horizon: Count | None = option(
        None,
        "length of the learning-rate schedule in steps, if training stops before its end; "
        "default: --steps",
    )
    schedule: str = "linear"  # any transformers schedule
    weight_decay: Weight = option(
        HUBERT.weight_decay, "weight decay of AdamW; biases and layer norms have none"
    )
    adam_betas: tuple[Decay, Decay] = option(
        HUBERT.adam_betas,
        "betas of AdamW: decay of the mean gradient and of its mean square",
        metavar=("B1", "B2"),
    )
    adam_epsilon: Amount = option(HUBERT.adam_epsilon, "epsilon of AdamW")
    clip: Weight = option(1.0, "clip the gradient to this norm; 0: do not clip", name="clip_norm")
    bf16: bool | None = option(
        None,
        "precision of training: bf16 (autocast; weights stay float32) or fp32; auto: bf16 where "
        "the GPU or processor computes in it, which is many times slower where it does not",
        name="precision",
        values={"auto": None, **BF16},
    )
    seed: Whole = option(0, "seed of weights and batches")
    save_every: Count = option(250, "steps between checkpoints; a killed run resumes from the last")
    log_every: Count = option(50, "steps between lines of checkpoints/log.jsonl")
    accumulation: Count = option(1, "number of batches in one update, to save memory")
    report_to: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = option(
        (),
        "also log for these: tensorboard (in checkpoints/tensorboard), wandb, mlflow (where "
        "their own variables say)",
    )
    workers: Whole | None = option(
        None,
        "number of processes that make batches ahead of the model; results do not depend on it; "
        "default: 0 on a CPU; with a GPU "
        "all cores but one, 16 at most, because distorting speech takes longer than a step",
    )

    def __post_init__(self) -> None:
        """Raise MissingExtra for a --report-to that is not installed, and InputError for a schedule
        that ends before the training."""
        if self.horizon is not None and self.horizon < (self.steps or 0):
            raise InputError(
                f"the schedule of --horizon {self.horizon} ends before --steps {self.steps}; give "
                "at least as many steps, or leave it out"
            )
        for name in self.report_to:
            if importlib.util.find_spec(name) is None:
                raise MissingExtra(f"--report-to {name}", name)


@dataclass(frozen=True)
class EvalOptions:
    """A model can be evaluated on held-out items while it is trained. The best checkpoint is
    written then, and not the last."""

    eval_every: Whole = option(
        0,
        "steps between evaluations on --eval-split, decoded as in evaluation, with weights in "
        "float32 (readers are written as int8 and may differ by a point); OUT is the best "
        "checkpoint; 0: none, OUT is the last",
    )
    eval_split: str = option("dev", "split of the corpus to evaluate on")
    eval_items: Whole = option(
        200,
        "questions (train ctc: recordings) to evaluate on, drawn "
        "once and for all seeds alike; 0: all",
    )
    patience: Whole = option(
        0, "stop after this many evaluations in a row that are no better than the best; 0: never"
    )

    def __post_init__(self) -> None:
        """Raise InputError for patience without evaluations."""
        refuse_ineffective(list_changes(self), {"eval_every": ("patience",)})


@dataclass(frozen=True)
class Parts:
    """The parts of a folder of models are named by path, hub id or shipped name."""

    encoder: str = option(MISSING, ENCODERS)
    codebook: Path | None = option(
        None,
        "codebook of the encoder: what `units fit`, import or transfer wrote, or a shipped name",
    )
    dual: Path | None = option(None, "folder of `train dual`, on units of this codebook")
    ctc: Path | None = option(None, "folder of `train ctc`, on this encoder")
    text_qa: Path | None = option(
        None, "folder of `train text-qa`, or a question-answering model of Hugging Face"
    )
    speechbert: Path | None = option(None, "folder of `train speechbert`, on this encoder")


def select_settings(options: Any) -> dict[str, Any]:
    """Return the options that decide the result, for the record of a stage and for cards: all but
    the number of workers, the destination of curves, and the evaluation where there is none."""
    return _keep_decisive(asdict(options))


def _keep_decisive(values: dict[str, Any]) -> dict[str, Any]:
    """Keep the values, also in dicts among them, that decide the result."""
    decisive = {}
    for name, value in values.items():
        if name in ("report_to", "workers"):
            continue
        if name == "evaluation" and not value["eval_every"]:
            continue
        decisive[name] = _keep_decisive(value) if isinstance(value, dict) else value
    return decisive

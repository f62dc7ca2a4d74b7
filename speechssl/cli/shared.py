"""What several verbs have in common: their making, their help, the options of training."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speechssl.adam import HUBERT, Adam
from speechssl.options import amount, config_parser, count, share, weight, whole
from speechssl.shipped import SHIPPED

Handler = Callable[[argparse.Namespace], None]


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Tells the default of every option that has one, but for switches."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.required or action.nargs == 0:
            return action.help
        if isinstance(action.default, list):
            shown = " ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in action.default)
            return f"{action.help} (default: {shown})" if shown else action.help
        if action.default == "":
            return action.help
        return super()._get_help_string(action)


def snr_over_flag(verb: argparse.ArgumentParser, default: str | None = "active") -> None:
    """default: None for verbs that tell what was typed from what was not."""
    over = "what of the speech an SNR is measured over: its active parts, or the whole signal with its pauses, as arXiv 2210.07978"
    over += "" if default else "; default: active"
    verb.add_argument("--snr-over", choices=("active", "signal"), default=default, help=over)


DRAWN = "drawn at random by --seed; default: 0.1, but 400 recordings at least, where there are as many"


def add_verb(verbs: Any, name: str, run: Handler, about: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=about.splitlines()[0], description=about, parents=[config_parser()], formatter_class=Help)
    verb.set_defaults(run=run)
    return verb


def trained(name: str) -> Path:
    """The type of an option: a folder of something trained, or one that ships by its name, such as minisqa-en/text-qa."""
    shipped = SHIPPED / name
    return shipped if (shipped / "card.json").is_file() else Path(name)


def add_group(verbs: Any, name: str, about: str) -> Any:
    return verbs.add_parser(name, help=about, description=about).add_subparsers(required=True, metavar="WHAT")


def training_flags(
    verb: argparse.ArgumentParser,
    steps: int | None = None,
    learning_rate: float | None = None,
    warmup: int | None = None,
    adam: Adam = HUBERT,
) -> None:
    """Without numbers their defaults are those of --size. adam: of the source of what is trained."""
    clip, saves, logs, of_size = (1.0, 250, 50, "") if steps else (None, None, None, "; default: of --size")
    verb.add_argument("--steps", type=count, default=steps, help=f"optimiser updates{of_size}")
    verb.add_argument("--horizon", type=count, help="steps the schedule is laid out for, where training stops earlier")
    verb.add_argument("--learning-rate", type=amount, default=learning_rate, help=f"peak{of_size}")
    rises = f"steps over which the learning rate rises to its peak{of_size}"
    verb.add_argument("--warmup-steps", type=whole, default=warmup, help=rises)
    betas, epsilon, decay = (list(adam.adam_betas), adam.adam_epsilon, adam.weight_decay) if steps else (None, None, None)
    averages = f"AdamW's decay of the mean gradient and of the mean square{of_size}"
    verb.add_argument("--adam-betas", type=share, nargs=2, default=betas, metavar=("B1", "B2"), help=averages)
    verb.add_argument("--adam-epsilon", type=amount, default=epsilon, help=f"AdamW's, beside the root of the mean square{of_size}")
    verb.add_argument("--weight-decay", type=weight, default=decay, help=f"AdamW's; biases and layer norms have none{of_size}")
    verb.add_argument("--accumulation", type=count, default=1, help="batches that make one update, where memory is short")
    verb.add_argument("--clip", type=weight, default=clip, help=f"largest gradient norm; 0: any{of_size}")
    kept = f"steps between checkpoints; a killed run resumes from the last{of_size}"
    verb.add_argument("--save-every", type=count, default=saves, help=kept)
    verb.add_argument("--log-every", type=count, default=logs, help=f"steps between lines of checkpoints/log.jsonl{of_size}")
    verb.add_argument("--no-bf16", dest="bf16", action="store_false", help="train in float32, not with bf16 autocast")
    verb.add_argument("--seed", type=whole, default=0, help="of weights and batches")
    verb.add_argument(
        "--tensorboard",
        action="store_true",
        help="log for TensorBoard in checkpoints/tensorboard too (needs speechssl[tensorboard])",
    )


TRAINING = (
    *("steps", "horizon", "learning_rate", "warmup_steps", "accumulation", "clip", "save_every", "log_every"),
    *("adam_betas", "adam_epsilon", "weight_decay", "bf16", "seed", "tensorboard"),
)


def training_options(o: argparse.Namespace) -> Any:
    from speechssl.training import TrainingOptions

    return TrainingOptions(**{name: getattr(o, name) for name in TRAINING if getattr(o, name) is not None})


CHECKPOINTS = "encoder folder, .pt file, hub id, shipped name or torchaudio:NAME"  # that can be trained
ENCODERS = "encoder folder, .pt file, hub id, shipped name, torchaudio:NAME or s3prl:NAME"

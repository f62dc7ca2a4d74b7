"""`speechssl superb`: the benchmark."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from speechssl.cli.parser import CHECKPOINTS, add_group, add_verb, amount, count, share, snr_over_flag, whole
from speechssl.cli.pretrain import adversary_flags, adversary_options

RUN = """small heads on a frozen encoder, or one that is trained with them: what is it good for?

Tasks: pr asr ks qbe sid asv sd ic sf er (SUPERB), se ss (its extension); `all` is all of them. Without --data the synthetic sets
are made first (needs speechssl[synth]; se needs speechssl[superb]). With it, DATA has a folder a task, as `speechssl prepare`
writes them for the published sets; `all` is then what is there. ks=FOLDER names the set of one task: train.jsonl, dev.jsonl and
test.jsonl with lines such as {"audio": "yes/1.wav", "labels": {"keyword": "yes"}}.

Hidden states are computed once and kept in OUT/features. Learning rates are tried on dev by successive halving, and the task's own
is trained too. With --seen and --unseen the heads, trained on clean speech, are judged in noise as well. Leaves OUT/results.jsonl
and superb.md; `speechssl report OUT` draws them. A killed run goes on.

--distort trains the heads on labelled distorted speech beside clean (kinds as `speechssl pretrain continue --help` lists them),
--finetune trains the encoder with each head, at its own smaller rate, and --dat is the domain-adversarial training of
arXiv 2203.16104: a classifier of the domain (clean or distorted; clean, m, g, r) that the encoder learns to mislead. Heads are then
chosen by the mean of their scores on clean and on distorted dev speech. Results have the encoder's name with +distorted,
+dat-binary-reversal-1, ... added; OUT/heads/NAME/TASK/seed-0/encoder is the trained encoder.

  speechssl superb run --encoder minisqa-en-robust --tasks all
  speechssl superb run --encoder mine=exp/mine fbank mfcc --tasks ks sid --data tasks-fsdd --unseen kitchen.wav --snr 10 5 0
  speechssl superb run --encoder minisqa-en-robust --tasks ks ic --finetune --distort m+g+r --dat binary \\
    --learning-rates --seen m+g+r
"""
SPEED = """heads from the cache beside the same heads with the encoder in the loop

Both are timed in turns in this process, on one batch after another of every task; caching itself is counted. Rows `ratio_cached`
in OUT/results.jsonl, where `superb run` has been.

  speechssl superb speed --encoder minisqa-en-robust --out exp/superb
"""
EXPORT = """hand an encoder to s3prl's own runner

OUT gets the encoder in Hugging Face's format (proven as `speechssl convert` proves it), the published settings of every task of
SUPERB as s3prl's config files, run.sh with the command lines, a README and a card. Nothing is done where it is there already.

  speechssl superb export exp/hubert-2/encoder exp/s3prl
  FLUENT_COMMANDS=/data/fluent_speech_commands_dataset bash exp/s3prl/run.sh ic
"""
UPSTREAM = "fbank, mfcc, a folder of models with encoder/ in it, or an encoder folder, .pt file, hub id, shipped or torchaudio:NAME"

NEEDED = {  # what is typed -> what means nothing without it
    "finetune": ("upstream_rate",),
    "distort": ("distorted", "snr_train", "noise_cache"),
    "dat": ("dat_weight", "dat_layers", "dat_mode", "dat_schedule"),
}


def add_superb(verbs: Any) -> None:
    what = add_group(verbs, "superb", "the SUPERB benchmark: small heads on a frozen encoder")
    for add in (_add_run, _add_speed, _add_export):
        add(what)


def _add_run(what: Any) -> None:
    verb = add_verb(what, "run", _run, RUN)
    verb.add_argument("--encoder", nargs="+", required=True, metavar="[NAME=]WHERE", help=UPSTREAM)
    _add_data(verb)
    verb.add_argument(
        "--preset", default="auto", choices=["auto", "published", "small"],
        help="sizes and steps of the heads: SUPERB's; small, for an hour of speech on a CPU; auto: small below 3 h for training",
    )  # fmt: skip
    verb.add_argument(
        "--learning-rates",
        type=amount,
        nargs="*",
        default=[10.0**-n for n in range(1, 8)],
        help="of the sweep; none: the task's own",
    )
    verb.add_argument("--seeds", type=whole, nargs="+", default=[0], help="of heads and batches; the first one tunes")
    verb.add_argument("--steps", type=count, help="updates of every head at most, instead of the preset's")
    verb.add_argument(
        "--seen", nargs="*", default=[], help="conditions that the encoder heard in training, as `evaluate qa` writes them"
    )
    verb.add_argument("--unseen", nargs="*", default=[], help="and that it never did: held-out, dev, bus.wav, a NAME of --noises")
    verb.add_argument("--snr", type=float, nargs="*", default=[20.0, 10.0, 5.0, 0.0], help="dB, of conditions that name none")
    snr_over_flag(verb)
    verb.add_argument("--at", type=float, default=5.0, help="dB, of the table clean | seen | unseen")
    verb.add_argument("--noises", nargs="*", default=[], metavar="NAME=FOLDER", help="recordings of noise: musan, fsd50k, ...")
    verb.add_argument("--voices", type=Path, nargs="*", default=[], help="recordings to make babble from")
    verb.add_argument(
        "--lm", type=Path, help="ARPA n-gram model for asr, such as LibriSpeech's 4-gram.arpa.gz; default: of the training texts"
    )
    verb.add_argument(
        "--features", default="auto", choices=["auto", "cached", "loop"],
        help="hidden states from the cache or with the encoder in the loop; auto: cached where there is room",
    )  # fmt: skip
    verb.add_argument(
        "--augment", nargs="*", default=[], metavar="CONDITION",
        help="training recordings are heard through one of these or none, drawn anew each time, with the encoder in the loop",
    )  # fmt: skip
    verb.add_argument("--cache-gb", type=amount, default=50.0, help="most that OUT/features may take, of each encoder")
    _add_tuning(verb)


def _add_tuning(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--finetune", action="store_true", help="train the encoder with each head; default: it is frozen")
    verb.add_argument("--upstream-rate", type=amount, help="its learning rate over the head's; default: 0.1")
    verb.add_argument("--distort", help="train on distorted speech, such as m+g+r; NAMEs of --noises too; default: clean speech")
    verb.add_argument("--distorted", type=share, help="share of the training recordings that are distorted; default: 0.5")
    verb.add_argument("--snr-train", type=float, nargs=2, metavar=("LOW", "HIGH"), help="dB, drawn uniformly; default: 10 19")
    verb.add_argument("--noise-cache", type=Path, help="folder that keeps generated noise; default: noise/ beside OUT")
    adversary_flags(verb, "dat", "domain-adversarial training (arXiv 2203.16104)", "the weighted sum that the head reads")
    verb.add_argument("--train-only", action="store_true", help="train heads and choose them on dev; read no test recording")


def _add_data(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--tasks", nargs="+", default=["all"], metavar="TASK[=FOLDER]", help="see above")
    verb.add_argument("--data", type=Path, help="a folder a task; default: synthetic sets, made in OUT/data")
    verb.add_argument("--out", type=Path, default=Path("exp/superb"), help="folder")
    verb.add_argument("--share", type=share, default=1.0, help="of the usual size of synthetic sets")
    verb.add_argument("--data-seed", type=whole, default=0, help="of synthetic sets")
    verb.add_argument("--precision", default="fp32", choices=["fp32", "bf16", "int8"], help="of the encoder")
    verb.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 ...")
    verb.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="threads of the encoder, processes of the heads")


def _run(o: argparse.Namespace) -> None:
    from speechssl.eval.robustness import parse_named
    from speechssl.eval.superb import ALL, Plan, check_tunable, find_data, name_encoders, run_superb
    from speechssl.superb.catalogue import ORDER

    tuning = _tuning(o)  # what cannot be trained is refused before synthetic sets are made
    if tuning and not o.data:
        check_tunable(ORDER if ALL in o.tasks else [task.partition("=")[0] for task in o.tasks])
    plan = Plan(
        encoders=name_encoders(o.encoder),
        data=find_data(o.out, o.tasks, o.data, o.share, o.data_seed, o.workers),
        preset=o.preset,
        rates=tuple(o.learning_rates),
        seeds=tuple(o.seeds),
        steps=o.steps,
        seen=tuple(o.seen),
        unseen=tuple(o.unseen),
        snrs=tuple(o.snr),
        snr_over=o.snr_over,
        voices=tuple(o.voices),
        folders={name: Path(folder) for name, folder in parse_named(o.noises, "--noises").items()},
        at=o.at,
        arpa=o.lm,
        features=o.features,
        augment=tuple(o.augment),
        cache_gb=o.cache_gb,
        precision=o.precision,
        device=o.device,
        workers=o.workers,
        tuning=tuning,
        test=not o.train_only,
    )
    print(run_superb(o.out, plan))


def _tuning(o: argparse.Namespace) -> Any:
    """None where heads are trained on clean speech and a frozen encoder."""
    from speechssl.augment.training import SNR, parse_distortions
    from speechssl.eval.robustness import parse_named
    from speechssl.pretrain.run import refuse_lonely
    from speechssl.superb.tuning import SHARE, UPSTREAM_RATE, Tuning

    refuse_lonely(vars(o), NEEDED)
    adversary = adversary_options(o, "dat")
    if not (o.finetune or o.distort or adversary):
        return None
    distort = None
    if o.distort:
        sources = {name: Path(folder) for name, folder in parse_named(o.noises, "--noises").items()}
        share = SHARE if o.distorted is None else o.distorted
        cache = o.noise_cache or o.out.parent / "noise"
        snr = tuple(o.snr_train or SNR)
        drawn = {"probability": (share, share), "snr": snr, "snr_over": o.snr_over}
        distort = parse_distortions(o.distort, sources, seed=o.seeds[0], cache=cache, **drawn)
    rate = (o.upstream_rate or UPSTREAM_RATE) if o.finetune else None
    return Tuning(rate=rate, distort=distort, adversary=adversary, bf16=o.precision == "bf16")


def _add_speed(what: Any) -> None:
    verb = add_verb(what, "speed", _speed, SPEED)
    verb.add_argument("--encoder", required=True, metavar="[NAME=]WHERE", help=UPSTREAM)
    _add_data(verb)
    verb.add_argument("--preset", default="auto", choices=["auto", "published", "small"], help="of the heads")
    verb.add_argument("--turns", type=count, default=5, help="batches of each that are timed, in turns")


def _speed(o: argparse.Namespace) -> None:
    from speechssl.eval.superb import Plan, find_data, name_encoders
    from speechssl.eval.superb_speed import compare_cached

    data = find_data(o.out, o.tasks, o.data, o.share, o.data_seed, o.workers)
    plan = Plan(name_encoders([o.encoder]), data, o.preset, precision=o.precision, device=o.device, workers=o.workers)
    print(compare_cached(o.out, plan, o.turns))


def _add_export(what: Any) -> None:
    verb = add_verb(what, "export", _export, EXPORT)
    verb.add_argument("encoder", help=CHECKPOINTS)
    verb.add_argument("out", type=Path, help="folder to make")


def _export(o: argparse.Namespace) -> None:
    from speechssl.superb.export import export_upstream

    card = export_upstream(o.encoder, o.out)
    print(
        f"{o.out}: {card['made_from']['name']} ({card['made_from']['hash']}) for s3prl's upstreams {', '.join(card['upstreams'])}"
    )
    print(f"bash {o.out}/run.sh {'|'.join(card['tasks'])}")

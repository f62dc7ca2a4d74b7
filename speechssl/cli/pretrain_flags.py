"""Options of the verbs of pre-training, by what they are about."""

from __future__ import annotations

import argparse
from pathlib import Path

from speechssl.options import amount, count, share, weight, whole


def source_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("source", type=Path, help="prepared corpus, manifest or folder of recordings")
    verb.add_argument("out", type=Path, help="gets encoder/, the target codebook and checkpoints/")
    verb.add_argument("--recordings", type=count, help="only the first N recordings")


def size_flag(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--size", choices=("small", "base", "large"), default="small", help="model and defaults of its training")


def target_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--layer", type=whole, help="of the teacher; default: of --size, or with --from the last")
    verb.add_argument("--smooth", type=count, default=1, help="frames the teacher's features are averaged over")
    verb.add_argument("--clusters", type=count, help="K; default: of --size, or with --from 100")
    verb.add_argument("--codebook", help="of the teacher, in the place of one that is fitted here: file or shipped name")
    verb.add_argument("--precision", help="of the teacher: fp32, or bf16, which is faster and changes a label in a hundred")
    verb.add_argument("--no-reference", dest="reference", action="store_false", help="leave the corpus's reference readings alone")
    verb.add_argument("--visible-weight", type=weight, help="weight of frames that are not masked (published: 0)")
    verb.add_argument("--projection", type=count, help="width in which labels are compared (published: 256)")


def contrastive_flags(verb: argparse.ArgumentParser) -> None:
    own = "; default: of --size, or of the checkpoint"
    verb.add_argument("--codebooks", type=count, help=f"of wav2vec 2.0's quantiser{own}")
    verb.add_argument("--entries", type=count, help=f"of each of them{own}")
    verb.add_argument("--diversity", type=weight, help=f"weight of (V - perplexity) / V{own}")
    verb.add_argument("--negatives", type=count, help="frames that the right one is told from (published: 100)")


def crop_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--mask-probability", type=share, help="share of frames that masked spans would cover without overlap")
    verb.add_argument("--mask-length", type=count, default=10, help="frames a span")
    verb.add_argument("--feature-penalty", type=weight, help="weight of the mean square of the CNN's output (published: 10)")
    verb.add_argument("--gradient-scale", type=weight, help="of the gradient into the CNN (published: 0.1)")
    verb.add_argument("--crops", type=count, help="a batch, which all processes together make")
    verb.add_argument("--crop-seconds", type=amount, help="length of a crop")
    verb.add_argument("--save-bf16", action="store_true", help="round the finished encoder's weights to bf16")


def distortion_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--distort", help="what is heard: m+g+r, or with shares m:0.3+g:0.4+r:0.3, of p, b, s and names, too")
    verb.add_argument(
        "--noise", type=_named, nargs="*", default=[], help="NAME=FOLDER of recordings: musan, voices, or of your own"
    )
    verb.add_argument("--snr", type=float, nargs=2, default=[10.0, 19.0], metavar=("LOW", "HIGH"), help="dB, drawn uniformly")
    verb.add_argument("--snr-end", type=float, nargs=2, metavar=("LOW", "HIGH"), help="at the end of training; default: --snr")
    verb.add_argument(
        "--distorted", type=share, nargs="+", default=[0.75], help="share of the crops, the rest is clean; two: beginning and end"
    )
    verb.add_argument("--silence", type=share, help="share of the crops of which a part is silenced: noise alone is heard there")
    verb.add_argument("--double", type=share, default=0.0, help="share of the noisy crops that get r, p or b as well")
    verb.add_argument("--noise-cache", type=Path, help="folder that keeps decoded and generated noise; default: beside OUT")
    verb.add_argument("--distil", type=weight, default=0.0, help="weight of a clean teacher's layers, those of the start")
    verb.add_argument("--distil-layers", type=whole, nargs="+", help="which of them; default: all")
    verb.add_argument("--dat", choices=("binary", "multi"), help="domain-adversarial training: clean or distorted, or a label each")
    verb.add_argument("--dat-weight", type=weight, default=1.0, help="largest lambda")
    verb.add_argument("--dat-layers", type=whole, nargs="+", help="that the classifier sees; default: the last")
    verb.add_argument("--dat-mode", choices=("reversal", "alternating"), default="reversal", help="how it is trained")
    verb.add_argument("--dat-schedule", choices=("ganin", "constant"), default="ganin", help="of lambda")
    verb.add_argument("--dat-frames", action="store_true", help="the classifier sees frames, not their mean over time")


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER")
    return name, Path(path)

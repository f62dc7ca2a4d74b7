"""`speechssl pretrain`: HuBERT, wav2vec 2.0, and going on with either on distorted speech."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speechssl.cli.parser import (
    CHECKPOINTS,
    DRAWN,
    ENCODERS,
    add_group,
    add_verb,
    amount,
    count,
    portion,
    share,
    snr_over_flag,
    training_flags,
    weight,
    whole,
)
from speechssl.errors import InputError

# Options of the verbs of pre-training, by what they are about.


@dataclass(frozen=True)
class Defaults:
    """What the defaults of a verb are, in words."""

    layer: str = "of --size"
    clusters: str = "of --size"
    visible_weight: str = "of --size"
    projection: str = "of --size"
    quantiser: str = "of --size, with --start of that"
    mask: str = "of --size"
    same: str = "yes, but for a HuBERT of --size small"
    penalty: str = "of --size"
    gradient: str = "of --size"
    crops: str = "those of --size"
    seconds: str = "of --size"


def source_flags(verb: argparse.ArgumentParser, gets: str) -> None:
    where = "prepared corpus (its training passages), manifest (.jsonl with `audio`, .txt or .tsv of paths) or folder of audio"
    verb.add_argument("source", type=Path, help=where)
    verb.add_argument("out", type=Path, help=f"gets {gets}; decoded audio, targets and noise go beside it, for other runs too")
    verb.add_argument("--recordings", type=count, help="only N recordings, drawn at random by --seed")


def size_flag(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--size", choices=("small", "base", "large"), default="small", help="model and defaults of its training")


def target_flags(verb: argparse.ArgumentParser, default: Defaults = Defaults()) -> None:
    """Of HuBERT."""
    verb.add_argument("--layer", type=whole, help=f"of the teacher; default: {default.layer}")
    verb.add_argument("--smooth", type=count, help="frames the teacher's features are averaged over (odd); default: 1")
    verb.add_argument("--clusters", type=count, help=f"K; default: {default.clusters}")
    verb.add_argument("--share", type=portion, help=f"of the recordings that k-means is fitted on, {DRAWN}")
    verb.add_argument("--budget", type=count, help="frames of them, drawn at random, that k-means sees; default: 300000")
    verb.add_argument("--starts", type=count, help="of k-means, the best is kept; default: 20")
    given = "of the teacher, in the place of one that is fitted here, with its layer, smoothing and K: file or shipped name"
    verb.add_argument("--codebook", help=given)
    faster = "of the teacher: fp32, or bf16, which is faster and changes a label in a hundred; default: fp32, or the codebook's"
    verb.add_argument("--precision", help=faster)
    verb.add_argument("--no-reference", dest="reference", action="store_false", help="leave the corpus's reference readings alone")
    verb.add_argument("--visible-weight", type=weight, help=f"of frames that are not masked; default: {default.visible_weight}")
    verb.add_argument("--projection", type=count, help=f"width in which labels are compared; default: {default.projection}")
    verb.add_argument("--save-bf16", action="store_true", help="round the finished encoder's weights to bf16")


def contrastive_flags(verb: argparse.ArgumentParser, default: Defaults = Defaults()) -> None:
    """Of wav2vec 2.0."""
    own = f"default: {default.quantiser}"
    verb.add_argument("--codebooks", type=count, help=f"of wav2vec 2.0's quantiser; {own}")
    verb.add_argument("--entries", type=count, help=f"V, of each of them; {own}")
    verb.add_argument("--diversity", type=weight, help=f"weight of (V - perplexity) / V; {own}")
    verb.add_argument("--negatives", type=count, help="frames that the right one is told from (default: 100, as published)")


def crop_flags(verb: argparse.ArgumentParser, default: Defaults = Defaults()) -> None:
    covered = f"share of frames that masked spans would cover without overlap; default: {default.mask}"
    verb.add_argument("--mask-probability", type=share, help=covered)
    verb.add_argument("--mask-length", type=count, default=10, help="frames a span")
    equal = f"rows of a batch are cut to equally many masked frames, as in fairseq; default: {default.same}"
    verb.add_argument("--same-masks", action="store_true", default=None, help=equal)
    verb.add_argument("--no-same-masks", dest="same_masks", action="store_false", default=None, help="rows keep whole spans")
    square = f"weight of the mean square of the CNN's output; default: {default.penalty}"
    verb.add_argument("--feature-penalty", type=weight, help=square)
    verb.add_argument("--gradient-scale", type=weight, help=f"of the gradient into the CNN; default: {default.gradient}")
    divided = f"a batch, of all processes together; default: {default.crops} an update, divided by --accumulation"
    verb.add_argument("--crops", type=count, help=divided)
    longest = "length of a crop; recordings from 2 s to this are heard in batches of shorter crops and more of them"
    verb.add_argument("--crop-seconds", type=amount, help=f"{longest}; default: {default.seconds}")


def distortion_flags(verb: argparse.ArgumentParser) -> None:
    heard = "what is heard: m+g+r and others, see `speechssl pretrain continue --help`; default: what was recorded"
    verb.add_argument("--distort", help=heard)
    verb.add_argument(
        "--noise", type=_named, nargs="*", metavar="NAME=FOLDER", help="recordings: musan, voices, rir, or a NAME in --distort"
    )
    verb.add_argument("--snr", type=float, nargs=2, metavar=("LOW", "HIGH"), help="dB, drawn uniformly; default: 10 19")
    verb.add_argument("--snr-end", type=float, nargs=2, metavar=("LOW", "HIGH"), help="at the end of training; default: --snr")
    snr_over_flag(verb, None)
    some = "share of the crops, the rest is clean; two: at the beginning and the end; default: 0.75"
    verb.add_argument("--distorted", type=share, nargs="+", metavar="SHARE", help=some)
    silent = "share of the crops of which a part is silenced, where noise alone is heard; default: 0"
    verb.add_argument("--silence", type=share, help=silent)
    verb.add_argument("--double", type=share, help="share of the noisy crops that get r, p or b as well; default: 0")
    verb.add_argument("--noise-cache", type=Path, help="folder that keeps decoded and generated noise; default: noise/ beside OUT")
    clean = "weight of the distance from the layers of the start, frozen, which hears the clean signal; default: 0"
    verb.add_argument("--distil", type=weight, help=clean)
    verb.add_argument("--distil-layers", type=whole, nargs="+", help="which layers; default: all")
    adversary_flags(verb, "domain-adversary", "domain-adversarial continual pre-training, a mode of ours", "the last")
    verb.add_argument("--domain-adversary-frames", action="store_true", help="the classifier sees frames, not their mean over time")


def adversary_flags(verb: argparse.ArgumentParser, name: str, what: str, seen: str) -> None:
    """Of a domain classifier that is misled. name: of the options; seen: what it sees where no layers are named."""
    labels = f"{what}: the domain is clean or distorted, or one a kind of distortion"
    verb.add_argument(f"--{name}", choices=("binary", "multi"), help=labels)
    verb.add_argument(f"--{name}-weight", type=weight, help="largest lambda; default: 1")
    verb.add_argument(f"--{name}-layers", type=whole, nargs="+", help=f"that the classifier sees; default: {seen}")
    modes = "gradient reversal, or classifier and encoder by turns; default: reversal"
    verb.add_argument(f"--{name}-mode", choices=("reversal", "alternating"), help=modes)
    verb.add_argument(f"--{name}-schedule", choices=("ganin", "constant"), help="of lambda; default: ganin")


def adversary_options(o: argparse.Namespace, name: str) -> Any:
    """An `AdversaryOptions` of what `adversary_flags` added; None where none is asked for."""
    from speechssl.pretrain.adversarial import AdversaryOptions

    values = {part: getattr(o, f"{name}_{part}", None) for part in ("layers", "weight", "mode", "schedule", "frames")}
    values["layers"] = tuple(values["layers"]) if values["layers"] else None
    typed = {part: value for part, value in values.items() if value is not None}
    return AdversaryOptions(getattr(o, name), **typed) if getattr(o, name) else None


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER")
    return name, Path(path)


HUBERT = """HuBERT: predict the cluster of every frame that is hidden

One run is one iteration: the first learns clusters of MFCCs, the next (--teacher) clusters of a layer of the one before.
--size base and large are the published models with the published settings as defaults, small is what a CPU trains; what is typed
wins. large needs a teacher. With --distort the input is distorted, the clusters are those of the clean signal. OUT/encoder is an
ordinary Hugging Face folder. A killed run goes on with the same command.

  speechssl pretrain hubert recordings/ exp/hubert-1
  speechssl pretrain hubert recordings/ exp/hubert-2 --teacher exp/hubert-1/encoder --layer 4 --smooth 3
  torchrun --nproc-per-node 8 -m speechssl pretrain hubert librispeech.tsv exp/base-1 --size base --accumulation 2
"""
WAV2VEC2 = """wav2vec 2.0: tell the quantised frame behind a mask from others of the utterance

--size base and large are the published models with the published settings as defaults, small is what a CPU trains; what is typed
wins. With --distort the input is distorted, what is quantised is the clean signal. OUT/encoder is an ordinary Hugging Face folder
(Wav2Vec2ForPreTraining). A killed run goes on with the same command.

  speechssl pretrain wav2vec2 recordings/ exp/wav2vec2
  speechssl pretrain wav2vec2 recordings/ exp/more --start facebook/wav2vec2-base --steps 1000
"""
CONTINUE = """go on with a HuBERT or wav2vec 2.0 on distorted speech, so that it hears through noise (arXiv 2203.16104)

The encoder hears the recordings distorted. A HuBERT learns the clusters of the clean signal, of its own last layer or of those that
--teacher, --layer or --codebook name; a wav2vec 2.0 to tell the quantised clean signal. Without --distort it goes on with what was
recorded. What belongs to the other kind of encoder is refused. A killed run goes on with the same command.
--domain-adversary is domain-adversarial continual pre-training, ours: the paper's domain-adversarial training (DAT) is that of
a task's model, `speechssl superb run --dat`.

DISTORT lists kinds of distortion, with shares where they are to differ (m:0.3+g:0.4+r:0.3): m, noise of MUSAN (--noise
musan=FOLDER) or of a generated stand-in; g, Gaussian; r, rooms, simulated or of --noise rir=FOLDER; p, pitch; b, a missing band;
c, codecs; s, babble of --noise voices=FOLDER; or a NAME that --noise NAME=FOLDER gives recordings to.

  speechssl pretrain continue recordings/ exp/robust --from facebook/hubert-base-ls960 --layer 6 --clusters 500 --distort m+g+r
  speechssl pretrain continue recordings/ exp/robust --from minisqa-en-robust/encoder \\
    --codebook minisqa-en-robust/units.safetensors \\
    --distort m+g+r --distil 5 --domain-adversary multi
  speechssl pretrain continue recordings/ exp/robust-w2v2 --from facebook/wav2vec2-base --distort m+g+bus --noise bus=noise/bus
"""
OF_START = Defaults("the last", "100", "1", "128", "of the checkpoint", "0.65", "no", "10", "1, of wav2vec 2.0 0.1", "10", "4")


def add_pretrain(verbs: Any) -> None:
    what = add_group(verbs, "pretrain", "self-supervised pre-training of encoders, and going on with it on distorted speech")
    for add in (_add_hubert, _add_wav2vec2, _add_continue):
        add(what)


def _add_hubert(what: Any) -> None:
    verb = add_verb(what, "hubert", _pretrain_hubert, HUBERT)
    source_flags(verb, "encoder/, the targets' codebook and checkpoints/")
    size_flag(verb)
    verb.add_argument("--teacher", help=f"mfcc, or the iteration before: {ENCODERS}; default: mfcc")
    verb.add_argument("--start", help=f"HuBERT to go on from: {CHECKPOINTS}; default: from scratch")
    target_flags(verb)
    crop_flags(verb)
    distortion_flags(verb)
    training_flags(verb)


def _pretrain_hubert(o: argparse.Namespace) -> None:
    from speechssl.pretrain.run import hubert_preset

    _run_pretraining(o, hubert_preset(o.size, o.teacher))


def _add_wav2vec2(what: Any) -> None:
    verb = add_verb(what, "wav2vec2", _pretrain_wav2vec2, WAV2VEC2)
    source_flags(verb, "encoder/ and checkpoints/")
    size_flag(verb)
    start = f"wav2vec 2.0 to go on from, with its heads where it has them: {CHECKPOINTS}; default: from scratch"
    verb.add_argument("--start", help=start)
    contrastive_flags(verb)
    crop_flags(verb)
    distortion_flags(verb)
    training_flags(verb)


def _pretrain_wav2vec2(o: argparse.Namespace) -> None:
    from speechssl.pretrain.run import wav2vec2_preset

    _run_pretraining(o, wav2vec2_preset(o.size, o.start))


def _add_continue(what: Any) -> None:
    verb = add_verb(what, "continue", _pretrain_continue, CONTINUE)
    source_flags(verb, "encoder/, a HuBERT's codebook and checkpoints/")
    verb.add_argument("--from", dest="start", required=True, help=f"HuBERT or wav2vec 2.0 to go on from: {CHECKPOINTS}")
    verb.add_argument("--teacher", help="of a HuBERT: encoder whose clusters are the targets, or mfcc; default: --from")
    target_flags(verb, OF_START)
    contrastive_flags(verb, OF_START)
    crop_flags(verb, OF_START)
    distortion_flags(verb)
    training_flags(verb, 1500, 3e-4, 100)


def _pretrain_continue(o: argparse.Namespace) -> None:
    from speechssl.pretrain.run import continued_preset

    _run_pretraining(o, continued_preset(o.start, o.teacher))


def _run_pretraining(o: argparse.Namespace, preset: Any) -> None:
    """preset: the settings of the paper or of the checkpoint, which the options of the command line replace."""
    from speechssl.pretrain.distil import DistilOptions
    from speechssl.pretrain.run import pretrain, with_options

    chosen = with_options(preset, _given(vars(o)))
    distil = DistilOptions(o.distil, tuple(o.distil_layers or ())) if o.distil else None
    chosen = replace(chosen, distort=_distortions(o), distil=distil, adversary=adversary_options(o, "domain_adversary"))
    print(f"{o.out / 'encoder'}: {pretrain(o.source, o.out, chosen).hash}")


def _distortions(o: argparse.Namespace) -> Any:
    from speechssl.augment.training import parse_distortions

    if o.distort is None:
        return None
    if len(o.distorted or ()) > 2:
        raise InputError("--distorted takes one share, or two for the beginning and the end of training; give no more")
    shares = (o.distorted[0], o.distorted[-1]) if o.distorted else None
    snr, snr_end = (tuple(ends) if ends else None for ends in (o.snr, o.snr_end))
    typed = _given({"probability": shares, "snr": snr, "snr_end": snr_end, "snr_over": o.snr_over, "double": o.double})
    return parse_distortions(o.distort, dict(o.noise or ()), seed=o.seed, cache=o.noise_cache or o.out.parent / "noise", **typed)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}

"""`speechssl pretrain`: HuBERT, wav2vec 2.0, and going on with either on distorted speech."""

from __future__ import annotations

import argparse
from typing import Any

from speechssl.cli.pretrain_flags import (
    Defaults,
    adversary_options,
    contrastive_flags,
    crop_flags,
    distortion_flags,
    size_flag,
    source_flags,
    target_flags,
)
from speechssl.cli.shared import CHECKPOINTS, ENCODERS, add_group, add_verb, training_flags
from speechssl.errors import InputError

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
  speechssl pretrain continue recordings/ exp/robust --from minisqa-en/encoder --codebook minisqa-en/units.safetensors \\
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
    from speechssl.pretraining.plans import hubert_plan

    _run_pretraining(o, hubert_plan(o.size, o.teacher))


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
    from speechssl.pretraining.plans import wav2vec2_plan

    _run_pretraining(o, wav2vec2_plan(o.size, o.start))


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
    from speechssl.pretraining.plans import continued_plan

    _run_pretraining(o, continued_plan(o.start, o.teacher))


def _run_pretraining(o: argparse.Namespace, plan: Any) -> None:
    """plan: the settings of the paper or of the checkpoint; what was typed replaces them."""
    from speechssl.pretraining.distillation import DistilOptions

    chosen = plan.with_options(_given(vars(o)))
    distil = DistilOptions(o.distil, tuple(o.distil_layers or ())) if o.distil else None
    chosen = chosen.with_extras(distort=_distortions(o), distil=distil, adversary=adversary_options(o, "domain_adversary"))
    print(f"{o.out / 'encoder'}: {chosen.run(o.source, o.out).hash}")


def _distortions(o: argparse.Namespace) -> Any:
    from speechssl.noise.training import parse_distortions

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

"""`speechssl pretrain`: HuBERT, wav2vec 2.0, and going on with either on distorted speech."""

from __future__ import annotations

import argparse
from typing import Any

from speechssl.cli.pretrain_flags import contrastive_flags, crop_flags, distortion_flags, size_flag, source_flags, target_flags
from speechssl.cli.shared import ENCODERS, add_group, add_verb, training_flags

HUBERT = """HuBERT: predict the cluster of every frame that is hidden

One run is one iteration: the first from MFCC clusters (--teacher mfcc), the second from clusters of a layer of the first
(--teacher OUT-1/encoder --layer 6). SOURCE is a prepared corpus (its training passages), a manifest or a folder of recordings.
--size base and large are the published models with the published settings as defaults, small is what ships; what is typed wins. A
run that was killed goes on with the same command.

  speechssl pretrain hubert recordings/ exp/hubert-1
  speechssl pretrain hubert recordings/ exp/hubert-2 --teacher exp/hubert-1/encoder --layer 4
  torchrun --nproc-per-node 8 -m speechssl pretrain hubert librispeech.tsv exp/base-1 --size base --accumulation 4
"""
WAV2VEC2 = """wav2vec 2.0: tell the quantised frame behind a mask from others of the utterance

SOURCE is a prepared corpus (its training passages), a manifest or a folder of recordings. --size base and large are the published
models with the published settings as defaults, small is ours; what is typed wins. OUT/encoder is an ordinary Wav2Vec2ForPreTraining
folder. A run that was killed goes on with the same command.

  speechssl pretrain wav2vec2 recordings/ exp/wav2vec2
  speechssl pretrain wav2vec2 recordings/ exp/more --start facebook/wav2vec2-base --steps 1000
"""
CONTINUE = """go on with a HuBERT or wav2vec 2.0 on distorted speech, so that it hears through noise (arXiv 2203.16104)

The encoder hears the recordings distorted. A HuBERT learns the clusters of the clean signal, as it hears that at the beginning; a
wav2vec 2.0 to tell the quantised clean signal. SOURCE is a prepared corpus (its training passages), a manifest or a folder of
recordings; a killed run goes on with the same command.

DISTORT lists kinds of distortion, with shares if they are to differ: m (noise of MUSAN where --noise musan=FOLDER names it, else of
a generated stand-in), g (Gaussian), r (rooms), p (pitch), b (a missing band), c (codecs), s (babble of --noise voices=FOLDER), or a
NAME that --noise NAME=FOLDER gives recordings to.

  speechssl pretrain continue recordings/ exp/robust --from facebook/hubert-base-ls960 --layer 6 --clusters 500 --distort m+g+r
  speechssl pretrain continue recordings/ exp/robust --from minisqa-en/encoder --distort m+g+r --distil 5 --dat multi
"""


def add_pretrain(verbs: Any) -> None:
    what = add_group(verbs, "pretrain", "self-supervised pre-training of encoders, and going on with it on distorted speech")
    for add in (_add_hubert, _add_wav2vec2, _add_continue):
        add(what)


def _add_hubert(what: Any) -> None:
    verb = add_verb(what, "hubert", _pretrain_hubert, HUBERT)
    source_flags(verb)
    size_flag(verb)
    verb.add_argument("--teacher", help="mfcc, or the encoder of the iteration before; default: mfcc")
    verb.add_argument("--start", help="encoder to go on from; default: from scratch")
    target_flags(verb)
    crop_flags(verb)
    distortion_flags(verb)
    training_flags(verb)


def _pretrain_hubert(o: argparse.Namespace) -> None:
    from speechssl.pretraining.plans import hubert_plan

    _run_pretraining(o, hubert_plan(o.size, o.teacher))


def _add_wav2vec2(what: Any) -> None:
    verb = add_verb(what, "wav2vec2", _pretrain_wav2vec2, WAV2VEC2)
    source_flags(verb)
    size_flag(verb)
    verb.add_argument("--start", help="wav2vec 2.0 to go on from, with its heads where it has them; default: from scratch")
    contrastive_flags(verb)
    crop_flags(verb)
    distortion_flags(verb)
    training_flags(verb)


def _pretrain_wav2vec2(o: argparse.Namespace) -> None:
    from speechssl.pretraining.plans import wav2vec2_plan

    _run_pretraining(o, wav2vec2_plan(o.size, o.start))


def _add_continue(what: Any) -> None:
    verb = add_verb(what, "continue", _pretrain_continue, CONTINUE)
    source_flags(verb)
    verb.add_argument("--from", dest="start", required=True, help=f"to go on from: {ENCODERS}")
    verb.add_argument("--teacher", help="of a HuBERT, encoder whose clusters of the clean signal are the targets; default: --from")
    target_flags(verb)
    contrastive_flags(verb)
    crop_flags(verb)
    distortion_flags(verb)
    training_flags(verb, 1500, 3e-4, 100)


def _pretrain_continue(o: argparse.Namespace) -> None:
    from speechssl.pretraining.plans import continued_plan

    _run_pretraining(o, continued_plan(o.start))


def _run_pretraining(o: argparse.Namespace, plan: Any) -> None:
    """plan: the settings of the paper or of the checkpoint; what was typed replaces them."""
    from speechssl.pretraining.adversary import AdversaryOptions
    from speechssl.pretraining.distillation import DistilOptions

    adversary = (o.dat, tuple(o.dat_layers or ()), o.dat_weight, o.dat_mode, o.dat_schedule) if o.dat else ()
    made = plan.with_options(
        {name: value for name, value in vars(o).items() if value is not None},
        distort=_distortions(o),
        distil=DistilOptions(o.distil, tuple(o.distil_layers or ())) if o.distil else None,
        adversary=AdversaryOptions(*adversary, frames=o.dat_frames) if adversary else None,
    )
    print(f"{o.out / 'encoder'}: {made.run(o.source, o.out).hash}")


def _distortions(o: argparse.Namespace) -> Any:
    from speechssl.noise.training import parse_distortions

    if o.distort is None:
        return None
    return parse_distortions(
        o.distort,
        dict(o.noise),
        seed=o.seed,
        probability=(o.distorted[0], o.distorted[-1]),
        snr=tuple(o.snr),
        snr_end=tuple(o.snr_end) if o.snr_end else None,
        double=o.double,
        cache=o.noise_cache or o.out.parent / "noise",
    )

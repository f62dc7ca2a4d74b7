"""Pre-training runs from recordings to an encoder folder.

A run makes its targets, trains, and writes `OUT/encoder`; it is resumable. It begins from scratch
or goes on from any HuBERT or wav2vec 2.0; on what is recorded, or on a distorted version of it with
the clean signal's targets (arXiv 2203.16104), perhaps beside a teacher on the clean signal and
against a domain classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
import yaml
from transformers import HubertConfig, HubertModel, Wav2Vec2Config, Wav2Vec2Model

from speechssl.artifacts import hash_json, stage, write_json
from speechssl.audio import SAMPLE_RATE
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.encoders.hubert import check_known
from speechssl.encoders.load import (
    file_hashes,
    load_checkpoint,
    load_encoder,
    save_encoder,
)
from speechssl.errors import InputError
from speechssl.options import changed_options, noise_folders, refuse_given, settings
from speechssl.pretrain.data import (
    Cropper,
    LabelledAudio,
    TrainingData,
    check_crops,
    fit_targets,
    pack_audio,
    training_data,
    write_targets,
)
from speechssl.pretrain.model import (
    ContrastiveBatches,
    HubertPretraining,
    Wav2Vec2Pretraining,
    auxiliary_losses,
    load_heads,
    load_pretraining,
    restore_label_head,
    save_label_head,
    save_pretraining,
)
from speechssl.pretrain.options import (
    Continue,
    Distortion,
    Hubert,
    Masks,
    Phones,
    Spin,
    Targets,
    Wav2Vec2,
)
from speechssl.processes import main_first
from speechssl.timing import FrameGrid
from speechssl.training import check_share, describe_steps, fit, write_by_main
from speechssl.units.codebook import Codebook, load_codebook
from speechssl.units.features import Features, features_of, load_features
from speechssl.units.spectral import spectral_stream

Run = Hubert | Wav2Vec2 | Continue | Spin | Phones
Verb = TypeVar("Verb", bound=Hubert | Wav2Vec2 | Continue)
STEPS = "options.training.steps"  # a finished run with fewer goes on
CARD = "encoder/card.json"
# the published models and settings, by method and size
PRESETS: dict[str, Any] = yaml.safe_load(
    resources.files("speechssl.pretrain").joinpath("presets.yaml").read_text("utf-8")
)


def continue_pretraining(o: Continue) -> None:
    """Train a HuBERT or wav2vec 2.0 further, each with its own loss."""
    if isinstance(load_checkpoint(o.start).model, Wav2Vec2Model):
        pretrain_wav2vec2(o)
    else:
        pretrain_hubert(o)


def pretrain_hubert(o: Hubert | Continue) -> None:
    """Train one iteration of HuBERT. Finished work is not done again.

    Raises InputError where OUT was made from other inputs, and as `apply_size` does.
    """
    o = apply_size(o)
    with pretraining(o, o.targets.reference) as run:
        if run.done:
            return
        torch.manual_seed(o.training.seed)
        encoder, normalise = _load_hubert(o)
        auxiliary = auxiliary_losses(encoder, o, o.start, run.distort)
        grid = frame_grid(encoder)
        codebook, audio = make_targets(o, run.data, grid, str(o.teacher), o.targets)
        model = HubertPretraining(encoder, codebook.size, o.prediction, o.convolutions, auxiliary)
        if o.start:
            restore_label_head(model, o.start, codebook.hash)
        distil = bool(o.distillation.distil)
        batches = make_cropper(o, audio, grid, normalise, run.distort, clean=distil)
        metrics = fit(model, batches, o.training, o.out / "checkpoints")

        def save(folder: Path) -> None:
            save_encoder(encoder, folder, normalise, o.targets.save_bf16)
            save_label_head(model, folder, codebook.hash)

        facts = {"what": "HuBERT encoder", "targets": codebook.card, "training": metrics}
        run.save(save, facts | batches.card)


def pretrain_wav2vec2(o: Wav2Vec2 | Continue) -> None:
    """Train a wav2vec 2.0, as `pretrain_hubert`."""
    o = apply_size(o)
    with pretraining(o) as run:
        if run.done:
            return
        torch.manual_seed(o.training.seed)
        model = _load_wav2vec2(o)
        model.auxiliary.extend(auxiliary_losses(model.encoder, o, o.start, run.distort))
        grid = frame_grid(model.encoder)
        audio = load_unlabelled(o, run.data, grid)
        distorted = bool(run.distort)
        cropper = make_cropper(o, audio, grid, model.normalise, run.distort, clean=distorted)
        batches = ContrastiveBatches(cropper, o.contrast, o.training.seed, o.training.accumulation)
        metrics = fit(model, batches, o.training, o.out / "checkpoints")
        facts = {"what": "wav2vec 2.0 with its heads", "training": metrics}
        run.save(partial(save_pretraining, model), facts | cropper.card)


def _load_hubert(o: Hubert | Continue) -> tuple[HubertModel, bool]:
    """Load or make the model to train, in float32, and say whether its input is normalised. Raises
    InputError for a start that is not a HuBERT."""
    model, normalise = load_start(o.start, o.size if isinstance(o, Hubert) else None)
    if not isinstance(model, HubertModel):
        kind = model.config.model_type
        raise InputError(f"{o.start} is a {kind} encoder; start this training from a HuBERT")
    return model, normalise


def load_start(start: str | None, size: str | None) -> tuple[Any, bool]:
    """Load a HuBERT or wav2vec 2.0 to go on from, or make a HuBERT of a size with random weights;
    all of it is to be trained. Say whether its input is normalised. Raises InputError for a start
    that cannot be trained."""
    if start is None:
        config = hubert_config(str(size))
        return HubertModel(config).train(), PRESETS["hubert"][size]["normalise"]
    checkpoint = load_checkpoint(start)
    check_known(checkpoint.model, start)
    return checkpoint.model.train().requires_grad_(True), checkpoint.normalise


def _load_wav2vec2(o: Wav2Vec2 | Continue) -> Wav2Vec2Pretraining:
    if isinstance(o, Wav2Vec2) and o.start is None:
        normalise = PRESETS["wav2vec2"][o.size]["normalise"]
        encoder = Wav2Vec2Model(wav2vec2_config(o.size))
        return Wav2Vec2Pretraining(encoder, o.contrast, o.convolutions, normalise)
    return load_pretraining(str(o.start), o.contrast, o.convolutions)


# ---- options that are not given are those of presets.yaml


def hubert_config(size: str) -> HubertConfig:
    """Return the architecture of a HuBERT from scratch."""
    return HubertConfig(**PRESETS["hubert"][size]["architecture"])


def wav2vec2_config(size: str) -> Wav2Vec2Config:
    """Return the architecture of a wav2vec 2.0 from scratch, with its heads."""
    return Wav2Vec2Config(**PRESETS["wav2vec2"][size]["architecture"])


def apply_size(o: Verb) -> Verb:
    """Fill in what was not given: from --size, or from the checkpoint that training continues.

    Raises InputError for a size that needs a teacher, a start of another kind, and options of the
    other kind of encoder.
    """
    if isinstance(o, Hubert):
        values = _hubert_values(o)
    elif isinstance(o, Wav2Vec2):
        values = _wav2vec2_values(o)
    else:
        values = _start_values(o)
    crops = max(values["crops"] // o.training.accumulation, 1)
    return fill_in(o, values | {"crops": crops})


def fill_in(options: Any, values: Mapping[str, Any]) -> Any:
    """Return a dataclass in which these values stand for None, in its groups as well."""
    found = {}
    for f in fields(options):
        value = getattr(options, f.name)
        if is_dataclass(value):
            found[f.name] = fill_in(value, values)
        elif value is None and f.name in values:
            found[f.name] = values[f.name]
    return replace(options, **found)


def _hubert_values(o: Hubert) -> dict[str, Any]:
    """Return the settings of the first iteration, or with a teacher of the last."""
    iterations = PRESETS["hubert"][o.size]["iterations"]
    teacher = o.teacher or "mfcc"
    values = iterations[0 if teacher == "mfcc" else -1] | {"teacher": teacher}
    if teacher == "mfcc" and "layer" in values:
        raise InputError(
            f"HuBERT {o.size} needs another HuBERT as teacher; give one with --teacher, such as "
            "facebook/hubert-base-ls960"
        )
    return _without_fitting(values) if o.targets.codebook else values


def _wav2vec2_values(o: Wav2Vec2) -> dict[str, Any]:
    """Return the settings of a size; with a start its heads are those of the start."""
    size = PRESETS["wav2vec2"][o.size]
    contrast = _head_settings(o.start) if o.start else size["contrast"]
    return size["options"] | contrast


def _start_values(o: Continue) -> dict[str, Any]:
    """Return the settings of the loss that the start was trained with; a HuBERT's targets are of
    the last layer."""
    model: Any = load_checkpoint(o.start).model
    if isinstance(model, Wav2Vec2Model):
        given = {"teacher": o.teacher} | changed_options(o.targets) | changed_options(o.prediction)
        refuse_given(given, given, f"on {o.start}, a wav2vec 2.0")
        return PRESETS["continue"]["wav2vec2"] | _head_settings(o.start)
    given = changed_options(o.contrast)
    refuse_given(given, given, f"on {o.start}, which is no wav2vec 2.0")
    width = model.config.hidden_size
    nearest = min(PRESETS["hubert"], key=lambda size: abs(hubert_config(size).hidden_size - width))
    projection = PRESETS["hubert"][nearest]["iterations"][0]["projection"]
    values = PRESETS["continue"]["hubert"] | {"teacher": o.start, "projection": projection}
    if o.targets.codebook:
        return _without_fitting(values)
    if o.teacher != "mfcc":
        values["layer"] = load_encoder(o.teacher or o.start).layers
    return values


def _without_fitting(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what a codebook says itself: what it was fitted on."""
    return {name: value for name, value in values.items() if name not in ("layer", "clusters")}


def _head_settings(start: str) -> dict[str, Any]:
    """Return what the heads of a checkpoint were trained with; base's where it has none or does not
    say."""
    _, trained_with = load_heads(start, load_checkpoint(start))
    return PRESETS["wav2vec2"]["base"]["contrast"] | trained_with


# ---- steps that the methods share


@dataclass(frozen=True)
class PretrainingRun:
    """A run has its recordings and distortions at hand. more: what decides it beside the options;
    done: OUT/encoder is there."""

    o: Run
    data: TrainingData
    distort: TrainingDistortions | None
    more: Mapping[str, Any]
    done: bool = False

    def options(self, identify: Callable[[str, str], str]) -> dict[str, Any]:
        """Return what decides the result, as JSON holds it: the options, with the distortions'
        card, and `more`.

        identify: option and its value, an encoder or a codebook -> what stands for it
        (`hash_model` or `name_model`).
        """
        values = {name: value for name, value in settings(self.o).items() if name not in PLACES}
        for options in (values, *(value for value in values.values() if isinstance(value, dict))):
            for name in MODELS:
                if options.get(name):
                    options[name] = identify(name, options[name])
        values["distort"] = None if self.distort is None else self.distort.card
        values["silence"] = self.o.distortion.silence
        return values | dict(self.more)

    def save(self, save: Callable[[Path], None], facts: Mapping[str, Any]) -> None:
        """Write OUT/encoder: what `save` writes into this folder, and last its card, which says
        that the run is done. facts: of the training."""
        folder = self.o.out / "encoder"

        def write() -> None:
            save(folder)
            card = {"options": self.options(name_model), "corpus": self.data.card, **facts}
            write_json(folder / "card.json", card | {"files": file_hashes(folder)})

        write_by_main(write)


@contextmanager
def pretraining(o: Run, reference: bool = False, **more: Any) -> Iterator[PretrainingRun]:
    """Begin or resume a run, and say at the end what was made. reference: targets are read off
    reference readings; more: what decides the run beside the options."""
    check_share(o.batches.crops)
    distort = make_distortions(o.distortion, o.training.seed, o.out)
    data = training_data(o.source, o.recordings, reference, o.training.seed)
    run = PretrainingRun(o, data, distort, more)
    inputs = {"data": data.hash, "options": run.options(hash_model)}
    with stage(o.out, inputs, grows=STEPS, card=CARD) as step:
        yield replace(run, done=step.done)
    encoder = load_encoder(o.out / "encoder")
    print(
        f"{o.out / 'encoder'}: {encoder.card['what']}, {encoder.layers} layers of {encoder.width}; "
        f"{describe_steps(encoder.card['training'])}; {encoder.hash}"
    )


def make_distortions(o: Distortion, seed: int, out: Path) -> TrainingDistortions | None:
    """Make the distortions of a run that writes `out`, with all their noise at hand; None without
    --distort."""
    if o.distort is None:
        return None
    return parse_distortions(
        o.distort,
        noise_folders(o.noise),
        seed=seed,
        probability=(o.distorted[0], o.distorted[-1]),
        snr=o.snr_range,
        snr_end=o.snr_range_end,
        double=o.double,
        cache=o.noise_cache or out.parent / "noise",
        snr_over=o.snr_over,
    )


def frame_grid(encoder: Any) -> FrameGrid:
    """Return the frame grid of a HuBERT or wav2vec 2.0."""
    config = encoder.config
    return FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)


def make_cropper(
    o: Run,
    audio: LabelledAudio,
    grid: FrameGrid,
    normalise: bool,
    distort: TrainingDistortions | None,
    *,
    clean: bool = False,
    second: TrainingDistortions | None = None,
) -> Cropper:
    """Make the batches of a run; see `Cropper`. Spin and phones mask nothing."""
    no_masks = Masks(mask_probability=0.0, same_masks=False)
    return Cropper(
        audio,
        grid,
        no_masks if isinstance(o, Spin | Phones) else o.masks,
        o.batches,
        o.training.seed,
        normalise,
        distort,
        clean=clean,
        horizon=o.training.horizon or o.training.steps,
        accumulation=o.training.accumulation,
        silence=o.distortion.silence,
        second=second,
    )


def pack_crops(o: Run, data: TrainingData, grid: FrameGrid) -> Path:
    """Pack the audio, once. Raises InputError where no recording is as long as a crop."""
    packed = pack_audio(data, o.out)
    check_crops(packed, grid, o.batches.crop_seconds)
    return packed


def load_unlabelled(o: Run, data: TrainingData, grid: FrameGrid) -> LabelledAudio:
    """Pack the audio and read it, all labels 0."""
    with main_first():
        return LabelledAudio.load(pack_crops(o, data, grid), grid)


def make_targets(
    o: Run, data: TrainingData, grid: FrameGrid, teacher: str, targets: Targets
) -> tuple[Codebook, LabelledAudio]:
    """Pack the audio, get or fit the codebook, and label all frames of `grid` with it; once.
    teacher: an encoder or "mfcc"."""
    with main_first():
        packed = pack_crops(o, data, grid)
        if targets.codebook:
            codebook = load_codebook(targets.codebook)
            features = features_of(codebook, teacher, targets.teacher_precision)
        else:
            if teacher == "mfcc":
                features = Features("mfcc", grid, partial(spectral_stream, grid=grid, kind="mfcc"))
            else:
                precision = targets.teacher_precision or "fp32"
                features = load_features(teacher, targets.layer, targets.smooth, precision)
            path = o.out / "targets.safetensors"
            if not path.is_file():
                fit_targets(data.recordings, features, targets, o.training.seed).save(path)
            codebook = load_codebook(path)
        labelled_by = [data.hash, codebook.hash, targets.reference, asdict(grid)]
        # beside `out` too, for runs that share the targets
        name = f"targets-{hash_json([*labelled_by, targets.teacher_precision])}"
        folder = o.out.parent / name
        made_from = {"corpus": data.hash, "reference": targets.reference}
        write_targets(data.recordings, folder, grid, features, codebook, packed, made_from)
        return codebook, LabelledAudio.load(packed, folder)


# ---- cards

PLACES = ("source", "out", "device", "distortion")  # do not decide the result, or are in a hash
MODELS = ("start", "teacher", "codebook")


def hash_model(name: str, value: str) -> str:
    """Return the hash of an encoder or a codebook: its weights identify it, not its place."""
    if value == "mfcc":
        return value
    return load_codebook(value).hash if name == "codebook" else load_encoder(value).hash


def name_model(name: str, value: str) -> str:
    """Return the end of a path, for a card: it does not say where things lie on this machine."""
    return "/".join(Path(value).parts[-2:])

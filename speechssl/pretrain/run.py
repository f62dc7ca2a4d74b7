"""Pre-training runs from recordings to an encoder folder.

A run makes its targets, trains, and writes `OUT/encoder`; it is resumable. It begins from scratch
or continues any HuBERT or wav2vec 2.0. Its input is the recordings, or distorted versions of them
with the targets of the clean signal (arXiv 2203.16104); a teacher on the clean signal and a domain
classifier may add to the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
import yaml
from transformers import HubertConfig, HubertModel, Wav2Vec2Config, Wav2Vec2Model

from speechssl.artifacts import Stage, begin_stage, hash_json, write_json
from speechssl.audio import SAMPLE_RATE
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.encoders.hubert import check_trainable
from speechssl.encoders.load import (
    hash_folder,
    load_checkpoint,
    load_encoder,
    make_small_config,
    save_encoder,
)
from speechssl.errors import InputError
from speechssl.options import list_changes, parse_noise_folders, refuse_given, select_settings
from speechssl.pretrain.data import (
    Cropper,
    LabelledAudio,
    TrainingData,
    check_lengths,
    count_shortest_crop,
    fit_targets,
    list_training_data,
    pack_audio,
    report_short,
    write_targets,
)
from speechssl.pretrain.model import (
    ContrastiveBatches,
    HubertPretraining,
    Wav2Vec2Pretraining,
    load_heads,
    load_pretraining,
    make_auxiliary,
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
from speechssl.units.features import Features, load_features, load_matching_features
from speechssl.units.spectral import stream_spectral

Options = Hubert | Wav2Vec2 | Continue | Spin | Phones
Verb = TypeVar("Verb", bound=Hubert | Wav2Vec2 | Continue)
STEPS = "options.training.steps"  # a finished run may be given more steps, and goes on
CARD = "encoder/card.json"
# the published models and settings, by method and size
PRESETS: dict[str, Any] = yaml.safe_load(
    resources.files("speechssl.pretrain").joinpath("presets.yaml").read_text("utf-8")
)


def continue_pretraining(o: Continue) -> None:
    """Train a HuBERT or wav2vec 2.0 further, each with its own loss. Errors are those of
    `pretrain_hubert`."""
    if isinstance(load_checkpoint(o.start).model, HubertModel):
        pretrain_hubert(o)
    else:
        pretrain_wav2vec2(o)


def pretrain_hubert(o: Hubert | Continue) -> None:
    """Train one iteration of HuBERT: make the targets, train and write OUT/encoder. Finished work
    is not done again.

    Raises InputError where OUT was made from other inputs, and for what `apply_size` refuses.
    """
    o = apply_size(o)
    run = prepare_run(o, o.targets.reference)
    with run.begin() as step:
        if not step.done:
            torch.manual_seed(o.training.seed)
            encoder, normalise = _load_hubert(o)
            auxiliary = make_auxiliary(encoder, o, o.start, run.distort)
            grid = make_frame_grid(encoder)
            codebook, audio = run.make_targets(grid, str(o.teacher), o.targets)
            model = HubertPretraining(
                encoder, codebook.size, o.prediction, o.convolutions, auxiliary
            )
            if o.start:
                restore_label_head(model, o.start, codebook.hash)
            distil = bool(o.distillation.distil)
            batches = run.make_cropper(audio, grid, normalise, clean=distil)
            metrics = fit(model, batches, o.training, o.out / "checkpoints")
            facts = {"what": "HuBERT encoder", "targets": codebook.card, "training": metrics}
            write_by_main(save_encoder, encoder, run.folder, normalise, o.targets.save_bf16)
            write_by_main(save_label_head, model, run.folder, codebook.hash)
            write_by_main(run.write_card, facts | batches.card)
    print_encoder(o)


def pretrain_wav2vec2(o: Wav2Vec2 | Continue) -> None:
    """Train a wav2vec 2.0 and write OUT/encoder. Errors are those of `pretrain_hubert`."""
    o = apply_size(o)
    run = prepare_run(o)
    with run.begin() as step:
        if not step.done:
            torch.manual_seed(o.training.seed)
            model = _load_wav2vec2(o)
            model.auxiliary.extend(make_auxiliary(model.encoder, o, o.start, run.distort))
            grid = make_frame_grid(model.encoder)
            audio = run.load_unlabelled(grid)
            is_distorted = run.distort is not None
            cropper = run.make_cropper(audio, grid, model.normalise, clean=is_distorted)
            batches = ContrastiveBatches(
                cropper, o.contrast, o.training.seed, o.training.accumulation
            )
            metrics = fit(model, batches, o.training, o.out / "checkpoints")
            facts = {"what": "wav2vec 2.0 with its heads", "training": metrics}
            write_by_main(save_pretraining, model, run.folder)
            write_by_main(run.write_card, facts | cropper.card)
    print_encoder(o)


def _load_hubert(o: Hubert | Continue) -> tuple[HubertModel, bool]:
    """Load or make the model to train, in float32, and return whether its input is normalised.
    Raises InputError for a start that is not a HuBERT."""
    if isinstance(o, Hubert) and o.start is None:
        normalise = PRESETS["hubert"][o.size]["normalise"]
        return HubertModel(make_config("hubert", o.size)).train(), normalise
    start = str(o.start)
    checkpoint = load_checkpoint(start)
    if not isinstance(checkpoint.model, HubertModel):
        kind = checkpoint.model.config.model_type
        raise InputError(f"{start} is a {kind} encoder; start this training from a HuBERT")
    check_trainable(checkpoint.model, start)
    return checkpoint.model.train().requires_grad_(True), checkpoint.normalise


def _load_wav2vec2(o: Wav2Vec2 | Continue) -> Wav2Vec2Pretraining:
    """Load or make the model to train, with its heads."""
    if isinstance(o, Wav2Vec2) and o.start is None:
        normalise = PRESETS["wav2vec2"][o.size]["normalise"]
        encoder = Wav2Vec2Model(make_config("wav2vec2", o.size))
        return Wav2Vec2Pretraining(encoder, o.contrast, o.convolutions, normalise)
    start = str(o.start)
    model = load_pretraining(start, o.contrast, o.convolutions)
    check_trainable(model.encoder, start)
    return model


# ---- values of presets.yaml for options that are not given


def make_config(kind: str, size: str) -> Any:
    """Return transformers' config of a new model; that of a wav2vec 2.0 has its heads. kind: hubert
    or wav2vec2; size: base, large, or small, which is that of `make_small_config`."""
    config = HubertConfig if kind == "hubert" else Wav2Vec2Config
    values = PRESETS[kind][size]["architecture"]
    if size == "small":
        values = make_small_config().to_diff_dict() | values
        del values["model_type"], values["transformers_version"]
    return config(**values)


def apply_size(o: Verb) -> Verb:
    """Fill in the options of a verb that were not given: from --size, or from the checkpoint that
    training continues.

    Raises InputError for a size that needs a teacher, a start of another kind, and options of the
    other kind of encoder.
    """
    if isinstance(o, Hubert):
        values = _choose_hubert_values(o)
    elif isinstance(o, Wav2Vec2):
        values = _choose_wav2vec2_values(o)
    else:
        values = _choose_start_values(o)
    crops = max(values["crops"] // o.training.accumulation, 1)
    return fill_in(o, values | {"crops": crops})


def fill_in(options: Any, values: Mapping[str, Any]) -> Any:
    """Return a dataclass in which these values replace None, in its groups as well."""
    filled = {}
    for f in fields(options):
        value = getattr(options, f.name)
        if is_dataclass(value):
            filled[f.name] = fill_in(value, values)
        elif value is None and f.name in values:
            filled[f.name] = values[f.name]
    return replace(options, **filled)


def _choose_hubert_values(o: Hubert) -> dict[str, Any]:
    """Return the settings of the first iteration, or with a teacher those of the last."""
    iterations = PRESETS["hubert"][o.size]["iterations"]
    values = iterations[0 if o.teacher == "mfcc" else -1]
    if o.teacher == "mfcc" and "layer" in values:
        raise InputError(
            f"HuBERT {o.size} needs another HuBERT as teacher; give one with --teacher, such as "
            "facebook/hubert-base-ls960"
        )
    return _drop_fitting(values) if o.targets.codebook else values


def _choose_wav2vec2_values(o: Wav2Vec2) -> dict[str, Any]:
    """Return the settings of a size; the heads of a start keep their own."""
    size = PRESETS["wav2vec2"][o.size]
    contrast = _read_head_settings(o.start) if o.start else size["contrast"]
    return size["options"] | contrast


def _choose_start_values(o: Continue) -> dict[str, Any]:
    """Return the settings of the loss that the start was trained with; the targets of a HuBERT come
    from its last layer."""
    model: Any = load_checkpoint(o.start).model
    given = list_changes(o)
    if isinstance(model, Wav2Vec2Model):
        options_of_hubert = ("teacher", *vars(o.targets), *vars(o.prediction))
        refuse_given(options_of_hubert, given, f"on {o.start}, a wav2vec 2.0")
        return PRESETS["continue"]["wav2vec2"] | _read_head_settings(o.start)
    refuse_given(vars(o.contrast), given, f"on {o.start}, which is no wav2vec 2.0")
    width = model.config.hidden_size
    nearest = min(
        PRESETS["hubert"], key=lambda size: abs(make_config("hubert", size).hidden_size - width)
    )
    projection = PRESETS["hubert"][nearest]["iterations"][0]["projection"]
    values = PRESETS["continue"]["hubert"] | {"teacher": o.start, "projection": projection}
    if o.targets.codebook:
        return _drop_fitting(values)
    if o.teacher != "mfcc":
        values["layer"] = load_encoder(o.teacher or o.start).layers
    return values


def _drop_fitting(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the settings that a given codebook determines: its layer and its clusters."""
    return {name: value for name, value in values.items() if name not in ("layer", "clusters")}


def _read_head_settings(start: str) -> dict[str, Any]:
    """Return the settings that the heads of a checkpoint were trained with; base's where it has no
    heads or does not say."""
    _, trained_with = load_heads(start, load_checkpoint(start))
    return PRESETS["wav2vec2"]["base"]["contrast"] | trained_with


# ---- steps that the methods share


def make_distortions(o: Distortion, seed: int, out: Path) -> TrainingDistortions | None:
    """Make the distortions of a run that writes `out`, and load or generate their noise; None
    without --distort."""
    if o.distort is None:
        return None
    return parse_distortions(
        o.distort,
        parse_noise_folders(o.noise),
        seed=seed,
        probability=(o.distorted[0], o.distorted[-1]),
        snr=o.snr_range,
        snr_end=o.snr_range_end,
        change_share=o.double,
        cache=o.noise_cache or out.parent / "noise",
        snr_over=o.snr_over,
    )


def make_frame_grid(encoder: Any) -> FrameGrid:
    """Return the frame grid of a HuBERT or wav2vec 2.0."""
    config = encoder.config
    return FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)


@dataclass(frozen=True)
class PretrainingRun:
    """A run of a method learns from these recordings, with these distortions."""

    options: Options
    data: TrainingData
    distort: TrainingDistortions | None
    # other inputs that decide the result: the card of Spin's voices
    further_inputs: dict[str, Any]

    def begin(self) -> AbstractContextManager[Stage]:
        """Begin or resume the run."""
        options = select_options(self.options, self.distort, hash_model) | self.further_inputs
        inputs = {"data": self.data.hash, "options": options}
        return begin_stage(self.options.out, inputs, grows=STEPS, card=CARD)

    def make_cropper(
        self,
        audio: LabelledAudio,
        grid: FrameGrid,
        normalise: bool,
        *,
        clean: bool = False,
        second_version: TrainingDistortions | None = None,
    ) -> Cropper:
        """Make the batches; see `Cropper`. Spin and phones mask nothing."""
        o = self.options
        no_masks = Masks(mask_probability=0.0, same_masks=False)
        return Cropper(
            audio,
            grid,
            no_masks if isinstance(o, Spin | Phones) else o.masks,
            o.batches,
            o.training.seed,
            normalise,
            self.distort,
            clean=clean,
            horizon=o.training.horizon or o.training.steps,
            accumulation=o.training.accumulation,
            silence=o.distortion.silence,
            second_version=second_version,
        )

    def pack_crops(self, grid: FrameGrid) -> Path:
        """Pack the audio, once. Raises InputError where no recording is as long as a crop."""
        frames = round(self.options.batches.crop_seconds * grid.frame_rate)
        shortest = count_shortest_crop(frames, grid.frame_rate)
        check_lengths(self.data.recordings, grid, shortest)
        packed = pack_audio(self.data, self.options.out)
        report_short(packed, grid, shortest)
        return packed

    def load_unlabelled(self, grid: FrameGrid) -> LabelledAudio:
        """Pack the audio and read it, all labels 0."""
        with main_first():
            return LabelledAudio.load(self.pack_crops(grid), grid)

    def make_targets(
        self, grid: FrameGrid, teacher: str, targets: Targets
    ) -> tuple[Codebook, LabelledAudio]:
        """Pack the audio, load or fit the codebook, and label all frames of `grid` with it, as far
        as this was not done before. teacher: an encoder or "mfcc"."""
        out, data = self.options.out, self.data
        with main_first():
            packed = self.pack_crops(grid)
            if targets.codebook:
                codebook = load_codebook(targets.codebook)
                features = load_matching_features(codebook, teacher, targets.teacher_precision)
            else:
                if teacher == "mfcc":
                    stream = partial(stream_spectral, grid=grid, kind="mfcc")
                    features = Features("mfcc", grid, stream)
                else:
                    precision = targets.teacher_precision or "fp32"
                    features = load_features(teacher, targets.layer, targets.smooth, precision)
                path = out / "targets.safetensors"
                if not path.is_file():
                    seed = self.options.training.seed
                    fit_targets(data.recordings, features, targets, seed).save(path)
                codebook = load_codebook(path)
            inputs = [data.hash, codebook.hash, targets.reference, asdict(grid)]
            # beside `out`, so that runs can share the targets
            folder = out.parent / f"targets-{hash_json([*inputs, targets.teacher_precision])}"
            made_from = {"corpus": data.hash, "reference": targets.reference}
            write_targets(data.recordings, folder, grid, features, codebook, packed, made_from)
            return codebook, LabelledAudio.load(packed, folder)

    @property
    def folder(self) -> Path:
        """Return the folder of the encoder."""
        return self.options.out / "encoder"

    def write_card(self, facts: dict[str, Any]) -> None:
        """Write the card of the encoder, which marks the run as done, after all other files. facts:
        its entries about the training."""
        options = select_options(self.options, self.distort, name_model) | self.further_inputs
        card = {"options": options, "corpus": self.data.card, "files": hash_folder(self.folder)}
        write_json(self.folder / "card.json", card | facts)


def prepare_run(o: Options, reference: bool = False, **further_inputs: Any) -> PretrainingRun:
    """Make the distortions and list the recordings of a run. further_inputs: see `PretrainingRun`.

    reference: whether targets come from reference readings, where there are any.
    """
    check_share(o.batches.crops)
    data = list_training_data(o.source, o.recordings, reference, o.training.seed)
    distort = make_distortions(o.distortion, o.training.seed, o.out)
    return PretrainingRun(o, data, distort, further_inputs)


def print_encoder(o: Options) -> None:
    """Print a line about the encoder that was made."""
    encoder = load_encoder(o.out / "encoder")
    after = ""
    if isinstance(o, Continue):
        after = "; next: `speechssl units transfer`, so that units keep their meaning"
    print(
        f"{o.out / 'encoder'}: {encoder.card['what']}, {encoder.layers} layers of {encoder.width}; "
        f"{describe_steps(encoder.card['training'])}; {encoder.hash}{after}"
    )


# ---- cards

# options that do not decide the result, or whose contents stand in the card by themselves
LEFT_OUT = ("source", "out", "device", "distortion")
MODELS = ("start", "teacher", "codebook")  # options that name a model


def select_options(
    o: Options, distort: TrainingDistortions | None, identify: Callable[[str, str], str]
) -> dict[str, Any]:
    """Return the options that decide the result, as JSON holds them, with the distortions' card.

    identify: `hash_model` or `name_model`, which gives the text that stands for a model.
    """
    values = {name: value for name, value in select_settings(o).items() if name not in LEFT_OUT}
    groups = [value for value in values.values() if isinstance(value, dict)]
    for options in (values, *groups):
        for name in MODELS:
            if options.get(name):
                options[name] = identify(name, options[name])
    values["distort"] = None if distort is None else distort.card
    values["silence"] = o.distortion.silence
    return values


def hash_model(name: str, value: str) -> str:
    """Return the hash of an encoder or a codebook: its weights identify it, not its path."""
    if value == "mfcc":
        return value
    return load_codebook(value).hash if name == "codebook" else load_encoder(value).hash


def name_model(name: str, value: str) -> str:
    """Return the end of a path, for a card: it does not say where files lie on this machine."""
    return "/".join(Path(value).parts[-2:])

"""Make the tasks of the robustness grid for an encoder: train what is missing, on clean speech.

`MAKERS` has a function a task; `load_tested` loads the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from speechssl.cascade.options import CtcOptions, ReaderOptions, TrainCtc
from speechssl.cascade.train import fit_ctc
from speechssl.checkpoints import SHIPPED
from speechssl.data.records import first_passages, load_corpus
from speechssl.data.superb import LabelledSet, load_labelled
from speechssl.encoders.encoder import SharedEncoder, SpeechEncoder
from speechssl.encoders.load import load_encoder, shared_encoder
from speechssl.errors import InputError
from speechssl.eval.conditions import Setting, check_unseen, trained_noises
from speechssl.eval.grid_tasks import (
    GridTask,
    check_split,
    load_classification,
    load_recognition,
    qa_tasks,
    units_task,
)
from speechssl.eval.options import TEST, Robustness
from speechssl.options import PLAIN, TrainingOptions
from speechssl.superb.data import (
    TRAINING,
    CachedLoader,
    HeadSettings,
    cache_states,
    encoder_card,
    list_split_recordings,
)
from speechssl.superb.tasks.classification import Classification
from speechssl.superb.train import HeadRun, train_heads
from speechssl.systems import load_systems
from speechssl.units.codebook import load_codebook
from speechssl.units.features import extractor_of

# learning rates of a classification head, of which the best on dev is kept
HEAD_RATES = (1e-4, 1e-3, 1e-2, 1e-1)
RECOGNISER = CtcOptions(
    TrainingOptions(800, 4e-3, 100, **vars(PLAIN)), passages=200, crop_seconds=4.0, lstm_width=192
)
CASCADES = ("cascade-ctc", "cascade-ctc-greedy")
NEEDS = {  # what a folder of models must have in it
    "units": "encoder/ and units.safetensors",
    "dual": "encoder/, units.safetensors and dual/",
    **dict.fromkeys(CASCADES, "encoder/, ctc/ and text-qa/ (or --reader)"),
    "speechbert": "encoder/, speechbert/ and ctc/",
}


@dataclass(frozen=True)
class TestedEncoder:
    """A tested encoder may come with readers and heads. models: its folder of models (`systems`),
    None for an encoder alone. trained_noises: noises it was trained on."""

    name: str
    encoder: SharedEncoder
    models: Path | None
    trained_noises: frozenset[str] = frozenset()

    def models_for(self, task: str) -> Path:
        """Return the folder of models. Raises InputError where the encoder comes alone."""
        if self.models is None:
            needs = f"give a folder with {NEEDS[task]} in it"
            raise InputError(f"the encoder {self.name} is not enough for the task {task}; {needs}")
        return self.models

    def check(self, tasks: Iterable[str], settings: Iterable[Setting] = ()) -> None:
        """Call it before anything is trained.

        Raises InputError where a task needs a folder of models and the encoder comes alone, and for
        unseen noise it was trained on.
        """
        for task in tasks:
            if task in NEEDS:
                self.models_for(task)
        check_unseen(self.name, self.trained_noises, settings)


def load_tested(name: str, where: str) -> TestedEncoder:
    """Load an encoder under test. where: a folder of models or the name of a shipped one, else what
    `load_encoder` takes. Raises InputError as these do."""
    for folder in (Path(where), SHIPPED / where):
        if (folder / "encoder").is_dir():
            return TestedEncoder(name, shared_encoder(folder), folder, trained_noises(folder))
    return TestedEncoder(name, SharedEncoder(load_encoder(where)), None, trained_noises(where))


# ---- tasks

# encoder, data, a folder of its own, options
Maker = Callable[[TestedEncoder, Path, Path, Robustness], list[GridTask]]


def _classification(
    name: str, tested: TestedEncoder, data: Path, out: Path, o: Robustness
) -> list[GridTask]:
    """Train and load a head. data: a labelled set of this task. The head's learning rate is chosen
    on clean speech of its dev split."""
    labelled = load_labelled(data)
    if labelled.task != name:
        raise InputError(
            f"{data} is a set of the task {labelled.task}, not of {name}; name the set of {name}"
        )
    check_split(labelled, o.split)
    encoder: Any = tested.encoder
    train_classifier(labelled, encoder, out, o.head_steps, o.seed, o.workers)
    return [load_classification(out, data, encoder, o.split).limit_items(o.recordings, o.seed)]


def train_classifier(
    data: LabelledSet,
    encoder: SpeechEncoder,
    out: Path,
    steps: int,
    seed: int = 0,
    workers: int = 2,
) -> None:
    """Train (once) and save a head in `out`; every learning rate gets all steps, but ends where dev
    improves no more.

    The hidden states of the set are kept in `out`-features. Raises InputError as `cache_states` and
    `train_heads`.
    """
    folder = out.with_name(f"{out.name}-features") / "train-dev"
    if not (out / "card.json").is_file():
        recordings = list_split_recordings(data, TRAINING)
        cache_states(encoder, recordings, folder, pooled=True, workers=workers)
    task = Classification(data.task, data, encoder.grid)
    settings = HeadSettings(HEAD_RATES[0], steps, 32, 100, patience=8)
    loader = CachedLoader(data, folder, task.pooled, task.wants_waves)
    train_heads(
        [HeadRun(task, loader, settings, seed, out, rates=HEAD_RATES)], encoder_card(encoder)
    )


def _asr(tested: TestedEncoder, data: Path, out: Path, o: Robustness) -> list[GridTask]:
    """Train and load a recogniser. data: a prepared corpus of questions, whose words have times in
    the training data. A `ctc` of the models is used."""
    encoder: Any = tested.encoder
    if tested.models and (tested.models / "ctc").is_dir():
        out = tested.models / "ctc"
    else:
        head = replace(RECOGNISER, training=replace(RECOGNISER.training, seed=o.seed))
        fit_ctc(TrainCtc(corpus=data, encoder=encoder.name, out=out, head=head), encoder)
    return [load_recognition(out, data, encoder, o.split).limit_items(o.recordings, o.seed)]


def _units(tested: TestedEncoder, data: Path, out: Path, o: Robustness) -> list[GridTask]:
    """Make the task of units. data: a prepared corpus, a manifest, a folder or a file; no labels
    are needed."""
    encoder: Any = tested.encoder
    extractor = extractor_of(
        encoder, load_codebook(tested.models_for("units") / "units.safetensors")
    )
    split = o.split if any(data.glob("*/passages.jsonl")) else None
    # units of clean speech are kept there
    out = out if o.split == TEST else out.with_name(f"{out.name}-{o.split}")
    return [units_task(extractor, data, out, split, o.recordings, o.seed, o.workers)]


def _question_answering(
    name: str, tested: TestedEncoder, data: Path, out: Path, o: Robustness
) -> list[GridTask]:
    corpus = first_passages(load_corpus(data, o.split), o.passages)
    reading = o.reading if name in CASCADES else ReaderOptions()
    models = tested.models_for(name)
    (system,) = load_systems(models, [name], o.bf16, tested.encoder, reading=reading)
    return qa_tasks(system, corpus)


MAKERS: Mapping[str, Maker] = {
    **{name: partial(_classification, name) for name in ("ks", "ic", "sid", "style")},
    "asr": _asr,
    "units": _units,
    **{name: partial(_question_answering, name) for name in ("dual", *CASCADES, "speechbert")},
}

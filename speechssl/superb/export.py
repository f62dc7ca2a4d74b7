"""Exports an encoder for s3prl's own runner: a folder with the encoder, the settings of every task of SUPERB, and a script.

OUT/encoder/       Hugging Face's format: s3prl's upstream `speechssl` takes it, and its `hf_hubert_custom` where that fits
OUT/configs/       a file a task, for the runner's -c: s3prl's package leaves its own out
OUT/run.sh         the command lines
OUT/README.md, OUT/card.json

The configs are s3prl's own (its package leaves out word lists, lists of recordings and, of PR and SF, code, too: for these a clone
is needed). Paths are set by the shell, not in a config. s3prl counts a step after its accumulation, as we do.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from speechssl.data.superb_sets import SNIPS_VOICES
from speechssl.encoders.export import convert
from speechssl.encoders.load import load_checkpoint
from speechssl.encoders.s3prl import PREFIX
from speechssl.errors import InputError, packages_of
from speechssl.io import hash_bytes, read_json, write_json, write_text
from speechssl.superb.data import HeadSettings
from speechssl.superb.tasks import TASKS as PUBLISHED
from speechssl.units.features import SPECTRAL

VARIABLES = {
    "S3PRL": "clone of github.com/s3prl/s3prl at 0.4.18: word lists, lists of recordings, the corpora of PR and SF",
    "LIBRISPEECH": "with train-clean-100, dev-clean, test-clean",
    "LIBRISPEECH_LENGTHS": "written by the clone's preprocess/generate_len_for_bucket.py -i $LIBRISPEECH -o ... -a .flac",
    "SPEECH_COMMANDS": "speech_commands_v0.01",
    "SPEECH_COMMANDS_TEST": "speech_commands_test_set_v0.01",
    "QUESST14": "quesst14Database",
    "VOXCELEB1": "with dev/wav and test/wav",
    "LIBRI2MIX_DIARISATION": "train, dev, test in Kaldi's format, of LibriMix's scripts/prepare_diarization.py",
    "FLUENT_COMMANDS": "fluent_speech_commands_dataset",
    "SNIPS": "Audio SNIPS as s3prl's preprocess/snips_prepare_data.sh makes it",
    "IEMOCAP": "with Session1 ... Session5, and meta_data of s3prl's downstream/emotion/IEMOCAP_preprocess.py",
    "VOICEBANK": "VoiceBank-DEMAND: train, dev, test in Kaldi's format",
    "LIBRI2MIX_SEPARATION": "wav16k min: train, dev, test in Kaldi's format",
}

HEAD = """#!/usr/bin/env bash
# SUPERB by s3prl's own runner, on the encoder beside this file, with the published settings (configs/):
#   FLUENT_COMMANDS=/data/fluent_speech_commands_dataset bash run.sh ic
#   bash run.sh ks ic er          one after another; each goes on from its last checkpoint
# Scores are printed, and written into $EXP/TASK/log.log. README.md says what they need.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
PYTHON=${PYTHON:-python}
DEVICE=${DEVICE:-cuda} # or cpu
EXP=${EXP:-$here/exp} # where heads and scores go
OVERRIDE=${OVERRIDE:-} # of the settings, e.g. "config.optimizer.lr=1.0e-3,,config.runner.total_steps=1000"
last=LAST # layers of the encoder are 0 to this

# Where sets lie; only those that a task reads must be set.
"""

RUNNER = """
[ -z "$S3PRL" ] || export PYTHONPATH="$S3PRL${PYTHONPATH:+:$PYTHONPATH}"
in_s3prl() { "$PYTHON" -m speechssl.encoders.s3prl s3prl.run_downstream --device "$DEVICE" "$@"; }

# need NAMES: of folders that must be there
need() {
  for name in "$@"; do
    [ -d "${!name}" ] && continue
    echo "run.sh: there is no folder $name=${!name}; set it to where that is (see the top of run.sh)" >&2
    exit 2
  done
}

# train FOLDER TASK EXPERT PATHS: a head on the frozen encoder
train() {
  in_s3prl -m train -a -u speechssl -k "$here/encoder" -d "$3" -c "$here/configs/$2.yaml" -p "$EXP/$1" \\
    -o "$4${OVERRIDE:+,,$OVERRIDE}"
}

# test FOLDER CHECKPOINT SPLIT: what the best on dev gives on test
test_head() {
  [ -f "$EXP/$1/$2" ] || { echo "run.sh: there is no $EXP/$1/$2: no head got anything right on dev; train longer" >&2; exit 2; }
  in_s3prl -m evaluate -t "$3" -e "$EXP/$1/$2"
}
"""

TAIL = """
[ $# -gt 0 ] || { sed -n '2,5p' "$0"; exit 2; }
for task in "$@"; do
  case $task in
    NAMES) "$task" ;;
    *) echo "run.sh: there is no task $task; choose from NAMES" >&2; exit 2 ;;
  esac
done
"""


def script(layers: int) -> str:
    """run.sh. layers: of the encoder."""
    known = "".join(f"{name}=${{{name}:-}} # {about}\n" for name, about in VARIABLES.items())
    names = "|".join(task.name for task in TASKS)
    functions = ""
    for task in TASKS:
        body = "\n".join(f"  {line}" for line in [f"need {' '.join(variables(task))}", *_commands(task)])
        functions += f"\n# {task.title}: {_about(task)}\n{task.name}() {{\n{body}\n}}\n"
    return HEAD.replace("LAST", str(layers)) + known + RUNNER + functions + TAIL.replace("NAMES", names)


def _about(task: RunnerTask) -> str:
    if (s := task.settings) is None:
        return "nothing is trained; a run for every layer, the best on dev counts"
    split = f"{s.batch // task.accumulation} x {task.accumulation}"
    return f"{s.optimiser} {s.learning_rate:g}, {s.steps:,} steps of {split}, clip {s.clip:g}"


def _commands(task: RunnerTask) -> list[str]:
    """The lines of a task's shell function."""
    paths = _overrides(task)
    if task.settings is None:
        call = f'in_s3prl -m evaluate -t "$split" -u speechssl -k "$here/encoder" -l "$layer" -d {task.downstream}'
        rest = f'-c "$here/configs/{task.name}.yaml" -p "$EXP/{task.name}-$layer-$split" -o "{paths}${{OVERRIDE:+,,$OVERRIDE}}"'
        return ['for layer in $(seq 0 "$last"); do for split in dev test; do', f"  {call} \\", f"    {rest}", "done; done"]
    if task.folds:
        chosen = f"{paths},,config.downstream_expert.datarc.test_fold='$fold'"
        return [
            f"for fold in {' '.join(task.folds)}; do",
            f'  train "{task.name}-$fold" {task.name} {task.downstream} "{chosen}"',
            f'  test_head "{task.name}-$fold" {task.best} test',
            "done",
        ]
    train = f'train {task.name} {task.name} {task.downstream} "{paths}"'
    if "*" in task.best:  # no dev set: every checkpoint is tested
        each = f'for state in "$EXP/{task.name}"/{task.best}; do test_head {task.name} "$(basename "$state")" {task.test}; done'
        return [train, each]
    return [train, f"test_head {task.name} {task.best} {task.test}"]


def _overrides(task: RunnerTask) -> str:
    """For the runner's -o, which evaluates values as Python."""
    texts = {key: f"'{v}'" if isinstance(v, str) else "[" + ",".join(f"'{x}'" for x in v) + "]" for key, v in task.paths.items()}
    return ",,".join(f"config.downstream_expert.{key}={text}" for key, text in texts.items())


def variables(task: RunnerTask) -> list[str]:
    """The shell variables of a task's paths."""
    return list(dict.fromkeys(re.findall(r"\$([A-Z0-9_]+)", _overrides(task))))


README = """# {name}, for s3prl's runner

`encoder/` holds {name} ({layers} layers of {width}, a frame every {hop} samples, input {normalised}) in Hugging Face's format.
Every layer was compared with the source's when it was written. The weights have the hash `{hash}` (`card.json`).

```sh
pip install {packages}
FLUENT_COMMANDS=/data/fluent_speech_commands_dataset bash run.sh ic
```

`run.sh` trains and tests one head a task with s3prl 0.4.18 and SUPERB's published settings. They are in `configs/`, since s3prl's
package leaves out its config files. It runs s3prl through `python -m speechssl.encoders.s3prl`, which registers the
upstream `speechssl` and restores what current torch, torchaudio and huggingface_hub no longer have. `OVERRIDE` changes settings,
such as the learning rate in a sweep: `OVERRIDE="config.optimizer.lr=1.0e-3"`, each with another `EXP`.

| task | s3prl's expert | settings | set | also needs |
|---|---|---|---|---|
{rows}

"clone": s3prl's repository in `S3PRL`, for files that its package leaves out. ASV trims silence with the program `sox` and runs on
a GPU only. SID and ASV keep lists of files inside s3prl's own folder: delete them there when the set moves. SE and SS are s3prl's
second versions (`_stft2`). speechssl's tests run KS, IC and ER; the other tasks rely on s3prl's code untested.

{native}"""

SAME = """s3prl's own upstream `{upstream}` reads the folder, too: `-u {upstream} -k encoder`, or
`S3PRLUpstream("{upstream}", path_or_url="encoder")`. It pads a batch before encoding it, so with a group norm an
utterance depends on the rest of its batch; `speechssl` encodes every utterance separately.
"""
OTHER = """s3prl has no upstream of its own that reads this architecture: use `speechssl`.
"""


def readme(card: Mapping[str, Any]) -> str:
    """README.md. card: that of the folder."""
    facts, native = card["encoder"], card["upstreams"][1:]
    rows = []
    for task in TASKS:
        wanted = ", ".join([*task.packages, *(["clone"] if task.clone else [])]) or "-"
        places = ", ".join(f"`{name}`" for name in variables(task) if name != "S3PRL")
        rows.append(f"| {task.name} | `{task.downstream}` | {_about(task)} | {places} | {wanted} |")
    return README.format(
        **facts,
        name=card["made_from"]["name"],
        hash=card["made_from"]["hash"],
        normalised="normalised" if facts["normalise"] else "not normalised",
        rows="\n".join(rows),
        packages=" ".join(f"'{package}'" for package in packages_of("s3prl")),
        native=SAME.format(upstream=native[0]) if native else OTHER,
    )


KIND = "encoder for s3prl's runner"
HOP = 320  # samples; what s3prl's hf_* upstreams say whatever a checkpoint has
NATIVE = {"hubert": "hf_hubert_custom", "wav2vec2": "hf_wav2vec2_custom"}  # s3prl's upstreams that read transformers' folders


def export_upstream(encoder: str | Path, out: Path) -> dict[str, Any]:
    """Write the folder, whole or not at all, and return its card. encoder: what `load_encoder` takes and has weights of its own.

    The encoder is checked as `convert` checks it: the same weights to the bit, every layer within 1e-5. Where the folder exists
    already and holds the same weights, only missing files are written: a script that was changed stays as it is.
    Raises InputError where the encoder has no weights to export or cannot be loaded, and where `out` is something else.
    """
    name = str(encoder)
    if name in SPECTRAL:
        raise InputError(f"{name} has no weights to export; s3prl computes such features itself: run it there with -u {name}")
    if name.startswith(PREFIX):
        upstream, _, path = name.removeprefix(PREFIX).partition("@")
        given = f"-u {upstream} -k {path}" if path else f"-u {upstream}"
        raise InputError(f"{name} is an upstream of s3prl; run it there with {given}")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        found = read_json(out / "card.json") if (out / "card.json").is_file() else None
        if not isinstance(found, dict) or found.get("what") != KIND:
            raise InputError(f"{out} already exists and is not an export of an encoder; choose another folder or delete it")
        convert(encoder, out / "encoder", "huggingface")
        _write_texts(out, found)
        return found
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))  # in the same file system
    folder.chmod(0o755)
    try:
        converted = convert(encoder, folder / "encoder", "huggingface")
        config: Any = load_checkpoint(folder / "encoder").model.config
        hop = math.prod(config.conv_stride)
        facts = {"model_type": config.model_type, "layers": config.num_hidden_layers, "width": config.hidden_size, "hop": hop}
        native = [NATIVE[config.model_type]] if config.model_type in NATIVE and hop == HOP else []
        made_from = {"name": "/".join(Path(encoder).parts[-2:])} | {key: converted["made_from"][key] for key in ("kind", "hash")}
        card = {
            "what": KIND,
            "made_from": made_from,
            "encoder": facts | {"normalise": converted["normalise"]},
            "upstreams": ["speechssl", *native],
            "tasks": {task.name: hash_bytes(_yaml(task.config()).encode()) for task in TASKS},
            "s3prl": "0.4.18",
        }
        _write_texts(folder, card)
        write_json(folder / "card.json", card)
        os.replace(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return card


def _write_texts(folder: Path, card: Mapping[str, Any]) -> None:
    """All missing files beside the encoder and the card."""
    texts = {f"configs/{task.name}.yaml": _yaml(task.config()) for task in TASKS}
    texts |= {"run.sh": script(card["encoder"]["layers"]), "README.md": readme(card)}
    for name, text in texts.items():
        if not (folder / name).exists():
            write_text(folder / name, text)
    (folder / "run.sh").chmod(0o755)


def _yaml(config: Mapping[str, Any]) -> str:
    return yaml.safe_dump(config, sort_keys=False, default_flow_style=None, width=120)


@dataclass(frozen=True)
class RunnerTask:
    """A task as the runner needs it. paths: key under `downstream_expert` -> path, with variables of the shell."""

    name: str  # ours
    title: str
    downstream: str  # s3prl's expert
    expert: Mapping[str, Any]  # sizes and loaders, as the expert reads them
    paths: Mapping[str, str | tuple[str, ...]]
    accumulation: int = 1  # backward passes in a step
    log: int = 100  # steps
    save: int = 1000  # steps
    keep: int = 1  # checkpoints
    evaluated: tuple[str, ...] = ("dev", "test")  # splits that are evaluated during training
    best: str = "dev-best.ckpt"
    test: str = "test"  # the split of the score
    packages: tuple[str, ...] = ()  # beside speechssl[s3prl]
    clone: bool = False  # whether files of s3prl's repository are needed
    specaug: Mapping[str, Any] = field(default_factory=dict)
    folds: tuple[str, ...] = ()

    @property
    def settings(self) -> HeadSettings | None:
        """The published ones; None: nothing is trained."""
        return PUBLISHED[self.name].published if self.name in PUBLISHED else None

    def config(self) -> dict[str, Any]:
        """Its config file without the paths, which the command line gives."""
        expert = {"downstream_expert": dict(self.expert)}
        if self.settings is None:
            return {"runner": {}} | expert
        runner = {
            "total_steps": self.settings.steps,
            "gradient_clipping": self.settings.clip,
            "gradient_accumulate_steps": self.accumulation,
            "log_step": self.log,
            "eval_step": self.settings.every,
            "save_step": self.save,
            "max_keep": self.keep,
            "eval_dataloaders": list(self.evaluated),
        }
        optimiser = {"name": "TorchOptim", "torch_optim_name": self.settings.optimiser, "lr": self.settings.learning_rate}
        if self.name in ("se", "ss"):  # s3prl's own AdamW, whose decay is 0; torch's is 0.01
            optimiser = {"name": "AdamW", "lr": self.settings.learning_rate}
        masked = {"specaug": dict(self.specaug)} if self.specaug else {}
        return {"runner": runner, "optimizer": optimiser} | masked | expert


# ---- parts that several tasks share


def _classified(**data: Any) -> dict[str, Any]:
    """A projection to 256, the mean over time, one linear layer."""
    head = {"projector_dim": 256, "select": "UtteranceLevel", "UtteranceLevel": {"pooling": "MeanPooling"}}
    return {"datarc": data, "modelrc": head}


def _recurrent() -> dict[str, Any]:
    """Two BiLSTMs of 1024 under CTC: the head of ASR and SF."""
    pairs = {"dropout": [0.2, 0.2], "layer_norm": [False, False], "proj": [False, False], "sample_rate": [1, 1]}
    layers = {"total_rate": -1, "module": "LSTM", "bidirection": True, "dim": [1024, 1024], "sample_style": "concat"}
    return {"project_dim": 1024, "select": "RNNs", "RNNs": layers | pairs}


def _masked(bins: int, window: int, loss: Mapping[str, Any], **sources: Any) -> dict[str, Any]:
    """Three BiLSTMs of 256 that give a mask of the spectrogram."""
    head = {"model": "SepRNN", "rnn": "LSTM", "rnn_layers": 3, "hidden_size": 256, "dropout": 0.1, "bidirectional": True}
    data = {"rate": 16_000, "n_fft": bins, "win_length": window, "window": "hann", "center": True}
    loader = {"num_workers": 4, "train_batchsize": 8, "eval_batchsize": 1}
    return {"datarc": data | sources, "loaderrc": loader, "modelrc": head | {"non_linear": "sigmoid", "log": "log1p", **loss}}


SPECAUG = {
    **{"adaptive": False, "adaptive_number_ratio": 0.04, "adaptive_size_ratio": 0.04, "max_n_time_masks": 20},
    **{"apply_time_warp": True, "apply_time_mask": True, "apply_freq_mask": True, "time_warp_window": 5},
    **{"time_mask_width_range": [0, 40], "freq_mask_width_range": [0, 50], "num_freq_mask": 4, "num_time_mask": 2},
}
SNIPS_SPEAKERS = {
    "train_speakers": list(SNIPS_VOICES["train"]),
    "valid_speakers": list(SNIPS_VOICES["dev"]),
    "test_speakers": list(SNIPS_VOICES["test"]),
}
SLOT_METRICS = ["slot_type_f1", "slot_value_cer", "slot_value_wer", "slot_edit_f1_full", "slot_edit_f1_part", "wer", "cer"]
LISTS = "$S3PRL/s3prl/downstream"  # of a clone
LEXICONS = tuple(f"{LISTS}/ctc/lexicon/librispeech-lexicon-{words}-g2p.txt" for words in ("200k", "allothers"))


ALIGNED = {"dist_method": "cosine_exp", "minmax_norm": True, "step_pattern": "asymmetric", "subsequence": True}
XVECTOR = {
    "module": "XVector",
    "input_dim": 512,
    "agg_module": "SP",
    "utter_module": "UtteranceExtractor",
    "module_config": {"XVector": {"agg_dim": 1500, "dropout_p": 0.0, "batch_norm": False}},
    "ObjectiveLoss": "AMSoftmaxLoss",
    "LossConfig": {"AMSoftmaxLoss": {"s": 30.0, "m": 0.4}},
}


def _three(variable: str) -> dict[str, str | tuple[str, ...]]:
    """Folders of a set in Kaldi's format."""
    return {f"loaderrc.{split}_dir": f"${variable}/{split}" for split in ("train", "dev", "test")}


# fmt: off
TASKS: tuple[RunnerTask, ...] = (
    RunnerTask(
        "pr", "phone recognition, LibriSpeech", "ctc",
        {
            "corpus": {"name": "libriphone", "bucketing": True, "batch_size": 16, "num_workers": 12}
            | {"train": ["train-clean-100"], "dev": ["dev-clean"], "test": ["test-clean"]},
            "text": {"mode": "word"},
            "model": {"project_dim": 256, "zero_infinity": True, "select": "FrameLevel"},
            "save_best_on": ["dev"], "metric_higher_better": False, "metric": ["per"],
        },
        {"corpus.path": "$LIBRISPEECH", "corpus.lexicon": LEXICONS, "text.vocab_file": f"{LISTS}/ctc/vocab/phoneme.txt"},
        accumulation=2, save=100, evaluated=("dev",), packages=("pandas", "joblib"), clone=True,
    ),
    RunnerTask(
        "asr", "recognition, LibriSpeech, greedy", "asr",
        {
            "datarc": {"train": ["train-clean-100"], "dev-clean": ["dev-clean"], "test-clean": ["test-clean"]}
            | {"num_workers": 12, "train_batch_size": 32, "batch_size": 32, "eval_batch_size": 1, "zero_infinity": True}
            | {"decoder_args": {"decoder_type": "None"}},
            "modelrc": _recurrent(),
        },
        {
            "datarc.libri_root": "$LIBRISPEECH", "datarc.bucket_file": "$LIBRISPEECH_LENGTHS",
            "datarc.dict_path": f"{LISTS}/asr/char.dict",
        },
        save=500, evaluated=("dev-clean",), best="dev-clean-best.ckpt", test="test-clean", packages=("pandas",), clone=True,
        specaug=SPECAUG,
    ),
    RunnerTask(
        "ks", "keywords, Speech Commands v1", "speech_commands", _classified(num_workers=8, batch_size=32),
        {"datarc.speech_commands_root": "$SPEECH_COMMANDS", "datarc.speech_commands_test_root": "$SPEECH_COMMANDS_TEST"},
    ),
    RunnerTask(
        "qbe", "spoken queries, QUESST14", "quesst14_dtw",
        {"max_workers": None, "feature_normalization": True, "silence_frame": None}
        | {"datarc": {"num_workers": 8, "batch_size": 1}, "dtwrc": ALIGNED},
        {"datarc.dataset_root": "$QUESST14"}, packages=("dtw-python", "lxml"),
    ),
    RunnerTask(
        "sid", "speakers, VoxCeleb1", "voxceleb1",
        _classified(num_workers=12, train_batch_size=8, eval_batch_size=1, max_timestep=128_000),
        {"datarc.file_path": "$VOXCELEB1", "datarc.meta_data": f"{LISTS}/voxceleb1/veri_test_class.txt"},
        accumulation=4, log=500, clone=True,
    ),
    RunnerTask(
        "asv", "speaker verification, VoxCeleb1", "sv_voxceleb1",
        {
            "datarc": {"vad_config": {"min_sec": 32_000}, "max_timestep": 128_000}
            | {"train_batch_size": 10, "eval_batch_size": 1, "num_workers": 8},
            "modelrc": XVECTOR,
        },
        {
            "datarc.file_path": "$VOXCELEB1",
            "datarc.train_meta_data": f"{LISTS}/sv_voxceleb1/dev_meta_data/dev_speaker_ids.txt",
            "datarc.dev_meta_data": f"{LISTS}/sv_voxceleb1/dev_meta_data/dev_meta_data.txt",
            "datarc.test_meta_data": f"{LISTS}/sv_voxceleb1/voxceleb1_test_v2.txt",
        },
        accumulation=5, log=500, save=10_000, keep=20, evaluated=(), best="states-*.ckpt", packages=("joblib",), clone=True,
    ),
    RunnerTask(
        "sd", "diarisation, Libri2Mix", "diarization",
        {
            "datarc": {"chunk_size": 2000, "subsampling": 1, "label_delay": 0}
            | {"num_speakers": 2, "rate": 16_000, "frame_shift": None},
            "loaderrc": {"num_workers": 8, "train_batchsize": 8, "eval_batchsize": 1},
            "scorerc": {"save_predictions": True},
            "modelrc": {"rnn_layers": 1, "hidden_size": 512},
        },
        _three("LIBRI2MIX_DIARISATION"),
        accumulation=4, log=500, save=500, evaluated=("dev",), best="best-states-dev.ckpt", packages=("h5py", "pandas"),
    ),
    RunnerTask(
        "ic", "intents, Fluent Speech Commands", "fluent_commands",
        _classified(num_workers=12, train_batch_size=32, eval_batch_size=32),
        {"datarc.file_path": "$FLUENT_COMMANDS"}, save=250, packages=("pandas",),
    ),
    RunnerTask(
        "sf", "slots, Audio SNIPS", "ctc",
        {
            "corpus": {"name": "snips", "bucketing": True, "batch_size": 32, "num_workers": 12}
            | {"train": ["train"], "dev": ["valid"], "test": ["test"]} | SNIPS_SPEAKERS,
            "text": {"mode": "character-slot"},
            "model": _recurrent() | {"zero_infinity": True},
            "save_best_on": ["dev"], "metric_higher_better": True, "metric": SLOT_METRICS,
        },
        {"corpus.path": "$SNIPS", "text.slots_file": "$SNIPS/slots.txt", "text.vocab_file": f"{LISTS}/ctc/vocab/character.txt"},
        save=500, evaluated=("dev",), packages=("pandas", "joblib"), clone=True, specaug=SPECAUG,
    ),
    RunnerTask(
        "er", "emotions, IEMOCAP, five folds", "emotion",
        _classified(pre_load=True, train_batch_size=4, eval_batch_size=4, num_workers=12, valid_ratio=0.2),
        {"datarc.root": "$IEMOCAP", "datarc.meta_data": "$IEMOCAP/meta_data"},
        accumulation=8, log=500, folds=("fold1", "fold2", "fold3", "fold4", "fold5"),
    ),
    RunnerTask(
        "se", "enhancement, VoiceBank-DEMAND", "enhancement_stft2",
        _masked(512, 400, {"loss_type": "L1", "mask_type": "AM"}, num_speakers=1, src=["noisy"], tgt=["clean"], hop_length=160),
        _three("VOICEBANK"),
        log=1250, save=10_000, keep=100, evaluated=("dev",), best="best-states-dev.ckpt", packages=("h5py", "asteroid"),
    ),
    RunnerTask(
        "ss", "separation, Libri2Mix", "separation_stft2",
        _masked(1024, 1024, {"loss_type": "MSE", "mask_type": "NPSM"}, num_speakers=2, src=["mix_clean"], tgt=["s1", "s2"]),
        _three("LIBRI2MIX_SEPARATION"),
        log=2000, save=10_000, keep=100, evaluated=("dev",), best="best-states-dev.ckpt", packages=("h5py", "asteroid"),
    ),
)
# fmt: on

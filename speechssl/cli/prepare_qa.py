"""`speechssl prepare`: the published corpora of spoken question answering, from what was downloaded before."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from speechssl.cli.shared import add_verb
from speechssl.options import count, whole

COMMON = """Any part of the corpus will do: splits that are not there are named in the report. Nothing is downloaded, and nothing is
dropped in silence: OUT/data_report.json holds the counts beside the published ones, hours, what was odd and what was done about
it, and OUT/set_aside.jsonl every item that was left out, and why. What is finished is left alone, what was killed goes on."""
SPEAK = "synthesise passages, questions and options that have no recording (needs speechssl[synth]); they are marked as synthetic"
SLICE = "only the first N passages with questions, of every split; the whole table is still counted against the published one"
SILENT = "take the texts alone, whatever recordings there are"


@dataclass(frozen=True)
class SpokenQA:
    """A verb: `prepare_<name>` of speechssl.corpora.spoken_qa.<module>."""

    module: str
    source: str  # help of SOURCE
    about: str
    name: str = ""  # where it is not that of the module
    flags: Callable[[argparse.ArgumentParser], None] | None = None  # more than those of all

    @property
    def function(self) -> Callable[..., dict[str, Any]]:
        module = import_module(f"speechssl.corpora.spoken_qa.{self.module}")
        found: Callable[..., dict[str, Any]] = getattr(module, f"prepare_{self.name or self.module}")
        return found


def _silent_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--no-audio", dest="audio", action="store_false", help=SILENT)


def _json_flags(language: str) -> Callable[[argparse.ArgumentParser], None]:
    def flags(verb: argparse.ArgumentParser) -> None:
        _silent_flags(verb)
        verb.add_argument("--language", default=language, help="of texts and speech: en or zh")

    return flags


VERBS = {
    "nmsqa": SpokenQA(
        "nmsqa",
        "the folder of any of the three releases",
        """NMSQA: SQuAD spoken, real speakers in the test set (github.com/DanielLin94144/DUAL-textless-SQA)

  parquet                SOURCE/dev.parquet (audio in it, or beside it)
  the original release   SOURCE/dev/meta-dev.csv, dev-answer-span.csv, dev-hash2question.json, *_audios/*.mp3, *.TextGrid
  Hugging Face           SOURCE/data/*.parquet of voidful/NMSQA

  speechssl prepare nmsqa NMSQA corpora/nmsqa
""",
    ),
    "odsqa": SpokenQA(
        "odsqa",
        "the folder of the JSON files, or one of them",
        """ODSQA: DRCD read by 20 Mandarin speakers, and DRCD-TTS and DRCD-backtrans (github.com/Chia-Hsuan-Lee/ODSQA)

  SOURCE/ODSQA_spokenq_test-v1.1.json, ODSQA_textq_test-v1.1.json     splits test-spokenq, test-textq
  SOURCE/*tts*.json, *backtrans*.json (with dev or test in the name)  splits train-tts, train-backtrans, dev-tts, ...
  SOURCE/DRCD_dev.json                                                optional: what was read out
  SOURCE/.../PARAGRAPH-SENTENCE.wav, .../questions/QUESTION.wav       optional: 16 kHz, e.g. 1147-5-1.wav

  speechssl prepare odsqa ODSQA corpora/odsqa
""",
        flags=_silent_flags,
    ),
    "toefl-qa": SpokenQA(
        "toefl_qa",
        "the folder data, or that which holds it",
        """TOEFL-QA: stories of the TOEFL listening test with multiple choice (github.com/iamyuanchung/TOEFL-QA)

  SOURCE/data/train|dev|test/tpo_1-conversation_1_1, ...              SENTENCE, QUESTION and four OPTION lines

Its audio was never published: with --speak it is synthesised.

  speechssl prepare toefl-qa TOEFL-QA corpora/toefl_qa --speak
""",
    ),
    "spoken-squad": SpokenQA(
        "spoken_squad",
        "the folder of the JSON files, or one of them",
        """Spoken-SQuAD: SQuAD through a synthesiser and a recogniser (github.com/Chia-Hsuan-Lee/Spoken-SQuAD)

  SOURCE/spoken_train-v1.1.json, spoken_test-v1.1.json                splits train, test
  SOURCE/spoken_test-v1.1_WER44.json, ..._WER54.json                  splits test-wer44, test-wer54, scored by text only
  SOURCE/dev-v1.1.json                                                optional: SQuAD's own, what was read out
  SOURCE/.../train_wav|dev_wav/ARTICLE_PARAGRAPH_SENTENCE.wav         optional: Spoken-SQuAD_audio.zip, unpacked

  speechssl prepare spoken-squad Spoken-SQuAD corpora/spoken_squad
""",
        flags=_silent_flags,
    ),
    "slue-sqa5": SpokenQA(
        "slue_sqa5",
        "the folder that was unpacked",
        """SLUE-SQA-5: real speech on both sides (huggingface.co/datasets/asapp/slue-phase-2)

  SOURCE/train-*.parquet, validation-*.parquet, test-*.parquet, verified_test-*.parquet (recordings inside), or the unpacked zip:
  SOURCE/slue-sqa5_fine-tune.tsv, slue-sqa5_dev.tsv, slue-sqa5_test.tsv, slue-sqa5_verified-test.tsv
  SOURCE/fine-tune|dev|test/question|document/*.wav, .../word2time/*.txt

  speechssl prepare slue-sqa5 slue-phase-2 corpora/slue_sqa5
""",
    ),
    "heysquad": SpokenQA(
        "heysquad",
        "the folder of the tables, or one of them",
        """HeySQuAD: people read the questions of SQuAD (huggingface.co/datasets/yijingwu/HeySQuAD_human)

  SOURCE/data/train-*.parquet, validation-*.parquet                   splits train, dev (or train-machine, dev-machine)
  SOURCE/HeySQuAD_json/*/dev-common-human-transcribed-1002.json, ...  splits of these names, text only

  speechssl prepare heysquad HeySQuAD_human corpora/heysquad
""",
        flags=_silent_flags,
    ),
    "squad": SpokenQA(
        "squad",
        "the folder, or one JSON file",
        """plain SQuAD JSON, 1.1 or 2.0, with audio beside it or none (rajpurkar.github.io/SQuAD-explorer)

  SOURCE/train-v1.1.json, dev-v1.1.json                               train, dev or test by name, else the name is the split
  SOURCE/audio/[SPLIT/]ID.wav                                         of a passage (id, or ARTICLE_PARAGRAPH from 0) or a question
  SOURCE/audio/[SPLIT/]ID_0.wav, ID_1.wav, ...                        a passage in segments
  SOURCE/audio/[SPLIT/]ID.words.json                                  optional: [["word", start, end], ...] of a passage, seconds

  speechssl prepare squad dev-v1.1.json corpora/squad --speak
""",
        flags=_json_flags("en"),
    ),
    "drcd": SpokenQA(
        "squad",
        "the folder, or one JSON file",
        """plain DRCD JSON (Mandarin), with audio beside it or none (github.com/DRCKnowledgeTeam/DRCD)

  SOURCE/DRCD_training.json, DRCD_dev.json, DRCD_test.json            train, dev or test by name, else the name is the split
  SOURCE/audio/[SPLIT/]ID.wav                                         of a passage or a question, e.g. 1147-5.wav, 1147-5-1.wav
  SOURCE/audio/[SPLIT/]ID_0.wav, ID_1.wav, ...                        a passage in segments
  SOURCE/audio/[SPLIT/]ID.words.json                                  optional: [["word", start, end], ...] of a passage, seconds

  speechssl prepare drcd DRCD corpora/drcd --speak
""",
        name="drcd",
        flags=_json_flags("zh"),
    ),
}


def add_spoken_qa(what: Any) -> None:
    for name, corpus in VERBS.items():
        verb = add_verb(what, name, _prepare, f"{corpus.about}\n{COMMON}\n")
        verb.add_argument("source", type=Path, help=corpus.source)
        verb.add_argument(
            "out", type=Path, help="folder to make: card.json, data_report.json, set_aside.jsonl and a folder a split"
        )
        if corpus.flags:
            corpus.flags(verb)
        verb.add_argument("--passages", type=count, metavar="N", help=SLICE)
        verb.add_argument("--speak", action="store_true", help=SPEAK)
        verb.add_argument("--seed", type=whole, default=0, help="of the voices of --speak")
        verb.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="processes; the bytes do not depend on it")
        verb.set_defaults(corpus=corpus)


def spelt(arguments: list[str]) -> list[str]:
    """The arguments of `speechssl` with a corpus written toefl_qa as toefl-qa."""
    known = {name.replace("-", "_"): name for name in VERBS}
    if arguments[:1] == ["prepare"] and len(arguments) > 1:
        return [arguments[0], known.get(arguments[1], arguments[1]), *arguments[2:]]
    return arguments


def _prepare(o: argparse.Namespace) -> None:
    from speechssl.corpora.spoken_qa.ledger import described
    from speechssl.corpora.spoken_qa.preparing import Wanted
    from speechssl.text import language_of

    wanted = Wanted(o.speak, o.seed, o.workers, getattr(o, "audio", True), o.passages)
    language = {"language": language_of(o.language)} if hasattr(o, "language") else {}
    report = o.corpus.function(o.source, o.out, wanted, **language)
    print(described(report))
    print(f"{o.out}: this report is in data_report.json, and every item that was set aside in set_aside.jsonl")

"""`speechssl prepare`: corpora."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from speechssl.cli.parser import add_group, add_verb, count, share, whole

# `speechssl prepare miniature`: a corpus to try a recipe with, in the layout of a published one.

ABOUT = """make a tiny invented corpus in the layout of a published one, to try its recipe (needs speechssl[synth])

CORPUS is nmsqa, odsqa, toefl-qa, spoken-squad or slue-sqa5. Passages and questions are MiniSQA's, recordings espeak-ng's; what is
measured on them says nothing about the corpus. What is finished is left alone.

  speechssl prepare miniature nmsqa tiny/nmsqa
  speechssl prepare nmsqa tiny/nmsqa corpus
"""


def add_miniature(what: Any) -> None:
    verb = add_verb(what, "miniature", _prepare_miniature, ABOUT)
    verb.add_argument("corpus", help="see above")
    verb.add_argument("out", type=Path, help="folder to make")
    verb.add_argument("--passages", type=count, default=6, help="training passages")
    verb.add_argument("--dev-passages", type=count, default=2, help="development passages")
    verb.add_argument("--test-passages", type=count, default=3, help="test passages")
    verb.add_argument("--questions", type=count, default=4, help="questions a passage")
    verb.add_argument("--seed", type=whole, default=0, help="same seed, same tree")


def _prepare_miniature(o: argparse.Namespace) -> None:
    from speechssl.synth.miniature import Settings, make_miniature

    counts = {"train": o.passages, "dev": o.dev_passages, "test": o.test_passages}
    made = make_miniature(o.out, Settings(o.corpus.replace("_", "-"), counts, o.questions, o.seed))
    found = ", ".join(f"{number} {split}" for split, number in counts.items())
    print(f"{o.out}: an invented miniature of {o.corpus}, {found} passages{'' if made else ' (there already)'}")


# `speechssl prepare`: the published corpora of spoken question answering, from what was downloaded before.

COMMON = """Any part of the corpus will do: splits that are not there are named in the report. Nothing is downloaded, and nothing is
dropped in silence: OUT/data_report.json holds the counts beside the published ones, hours, what was odd and what was done about
it, and OUT/set_aside.jsonl every item that was left out, and why. What is finished is left alone, what was killed goes on."""
SPEAK = "synthesise passages, questions and options that have no recording (needs speechssl[synth]); they are marked as synthetic"
SLICE = "only the first N passages with questions, of every split; the whole table is still counted against the published one"
SILENT = "take the texts alone, whatever recordings there are"


@dataclass(frozen=True)
class SpokenQA:
    """A verb: `prepare_<name>` of speechssl.data.spoken_qa.<module>."""

    module: str
    source: str  # help of SOURCE
    about: str
    name: str = ""  # where it is not that of the module
    flags: Callable[[argparse.ArgumentParser], None] | None = None  # more than those of all

    @property
    def function(self) -> Callable[..., dict[str, Any]]:
        module = import_module(f"speechssl.data.{self.module}")
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
    from speechssl.data.prepare import Wanted, described
    from speechssl.text import language_of

    wanted = Wanted(o.speak, o.seed, o.workers, getattr(o, "audio", True), o.passages)
    language = {"language": language_of(o.language)} if hasattr(o, "language") else {}
    report = o.corpus.function(o.source, o.out, wanted, **language)
    print(described(report))
    print(f"{o.out}: this report is in data_report.json, and every item that was set aside in set_aside.jsonl")


# `speechssl prepare`: the published sets of SUPERB, from folders that were downloaded before.

COMMON_OF_PREPARE_SUPERB = """Recordings stay where they are and are not copied; nothing is downloaded.
Counts are compared with the published ones before anything is written; --any-count takes a part of the corpus."""


@dataclass(frozen=True)
class Published:
    """A verb: `prepare_<module>` of speechssl.data.superb.<module>."""

    module: str
    source: str  # help of SOURCE
    folders: str  # below OUT
    about: str
    flags: Callable[[argparse.ArgumentParser], None] | None = None  # each is an argument of the function under its name


def _librispeech_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--tasks", nargs="+", default=["pr", "asr"], help="which sets")
    helped = "for pr: words and their phones; where several have a word the first is followed"
    verb.add_argument("--lexicon", dest="lexicons", nargs="+", type=Path, default=[], help=helped)


def _voxceleb1_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--tasks", nargs="+", default=["sid", "asv"], help="which sets")


def _libri2mix_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--tasks", nargs="+", default=["sd", "ss"], help="which sets")
    verb.add_argument("--diarization", type=Path, help="for sd: what prepare_diarization.py wrote (train, dev and test)")


VERBS_OF_PREPARE_SUPERB = {
    "librispeech": Published(
        "librispeech",
        "the folder LibriSpeech",
        "pr/ and asr/",
        """LibriSpeech for PR and ASR (openslr.org/12)

  LibriSpeech/train-clean-100|dev-clean|test-clean/SPEAKER/CHAPTER/*.flac and *.trans.txt
  librispeech-lexicon.txt (openslr.org/11), and s3prl's librispeech-lexicon-allothers-g2p.txt for the words that it lacks

  speechssl prepare librispeech LibriSpeech superb --lexicon librispeech-lexicon.txt librispeech-lexicon-allothers-g2p.txt
  speechssl prepare librispeech LibriSpeech superb --tasks asr
""",
        _librispeech_flags,
    ),
    "speech-commands": Published(
        "speech_commands",
        "the folder that holds both archives, unpacked",
        "ks/",
        """Speech Commands v1 for KS (download.tensorflow.org/data/speech_commands_v0.01.tar.gz and ..._test_set_v0.01.tar.gz)

  SOURCE/speech_commands_v0.01/yes|no|.../*.wav and _background_noise_/*.wav
  SOURCE/speech_commands_test_set_v0.01/yes|no|.../_unknown_|_silence_/*.wav

Silence is cut from the background noise into OUT/ks/audio.
""",
    ),
    "quesst14": Published(
        "quesst14",
        "the folder quesst14Database",
        "qbe/",
        """the English part of QUESST 2014 for QbE (speech.fit.vutbr.cz/files/quesst14Database.tgz)

  quesst14Database/Audio|dev_queries|eval_queries/*.wav
  quesst14Database/scoring/language_key_utterances|dev|eval.lst and groundtruth_quesst14_dev|eval/*.rttm
""",
    ),
    "voxceleb1": Published(
        "voxceleb1",
        "the folder that holds dev and test",
        "sid/ and asv/",
        """VoxCeleb1 for SID and ASV (robots.ox.ac.uk/~vgg/data/voxceleb)

  SOURCE/dev|test/wav/id10001/VIDEO/00001.wav
  SOURCE/iden_split.txt, and SOURCE/veri_test.txt (or voxceleb1_test_v2.txt) for asv
""",
        _voxceleb1_flags,
    ),
    "libri2mix": Published(
        "libri2mix",
        "the folder Libri2Mix",
        "sd/ and ss/",
        """Libri2Mix for SD and SS (made by github.com/ftshijt/LibriMix from LibriSpeech and WHAM)

  bash generate_librimix.sh CORPORA
  python3 scripts/prepare_diarization.py --target_dir CORPORA/diarization --source_dir CORPORA/Libri2Mix/wav16k/max/metadata

  ss: Libri2Mix/wav16k/min/train-100|dev|test/mix_clean|s1|s2/*.wav
  sd: CORPORA/diarization/train|dev|test/wav.scp (or wav/*.wav) and rttm (or segments and utt2spk)

  speechssl prepare libri2mix CORPORA/Libri2Mix superb --diarization CORPORA/diarization
""",
        _libri2mix_flags,
    ),
    "fluent-speech-commands": Published(
        "fluent_speech_commands",
        "the folder fluent_speech_commands_dataset",
        "ic/",
        """Fluent Speech Commands for IC (fluent.ai, after a form)

  fluent_speech_commands_dataset/wavs/speakers/SPEAKER/*.wav
  fluent_speech_commands_dataset/data/train_data.csv|valid_data.csv|test_data.csv
""",
    ),
    "audio-snips": Published(
        "audio_snips",
        "the folder SNIPS",
        "sf/",
        """Audio SNIPS for SF (prepared by s3prl's preprocess/snips_prepare_data.sh, or the archive that its docs/superb.md links)

  SNIPS/train|valid|test/VOICE-snips-SPLIT-NUMBER.wav
  SNIPS/all.iob.snips.txt
""",
    ),
    "iemocap": Published(
        "iemocap",
        "the folder IEMOCAP_full_release",
        "er/fold-1 to fold-5",
        """IEMOCAP in five folds for ER (sail.usc.edu/iemocap, after a form)

  IEMOCAP_full_release/Session1|...|Session5/dialog/EmoEvaluation/*.txt
  IEMOCAP_full_release/Session1|...|Session5/sentences/wav/DIALOGUE/*.wav
""",
    ),
    "voicebank-demand": Published(
        "voicebank_demand",
        "the folder that holds the four folders of recordings",
        "se/",
        """VoiceBank-DEMAND, 28 speakers, for SE (datashare.ed.ac.uk/handle/10283/2791)

  SOURCE/clean_trainset_28spk_wav|noisy_trainset_28spk_wav|clean_testset_wav|noisy_testset_wav/*.wav

Names with _16k at the end are taken first. Both 48 kHz and 16 kHz will do.
""",
    ),
}


def add_published(what: Any) -> None:
    for name, published in VERBS_OF_PREPARE_SUPERB.items():
        verb = add_verb(what, name, _prepare_of_prepare_superb, f"{published.about}\n{COMMON_OF_PREPARE_SUPERB}\n")
        verb.add_argument("source", type=Path, help=published.source)
        verb.add_argument("out", type=Path, help=f"folder to make: {published.folders}")
        if published.flags:
            published.flags(verb)
        verb.add_argument("--any-count", action="store_true", help="only warn where counts are not the published ones")
        verb.set_defaults(published=published)


def _prepare_of_prepare_superb(o: argparse.Namespace) -> None:
    module = import_module(f"speechssl.data.superb.{o.published.module}")
    given = {name: getattr(o, name) for name in ("tasks", "lexicons", "diarization") if hasattr(o, name)}
    prepare = getattr(module, f"prepare_{o.published.module}")
    for folder, card in prepare(o.source, o.out, any_count=o.any_count, **given).items():
        print(f"{o.out / folder}: {', '.join(f'{n:,} {split}' for split, n in card['sizes'].items())} recordings")


MINISQA = """make the synthetic spoken-QA corpus (needs speechssl[synth])

Passages and questions of a text generator, spoken by many voices of espeak-ng; those of train, dev and test are kept apart. What is
finished is left alone, what was killed goes on.

  speechssl prepare minisqa corpus
  speechssl prepare minisqa small --language zh --passages 100 --dev-passages 10 --test-passages 10
"""
MINISUPERB = """speak a small SUPERB: a set for each of its tasks, with no download (needs speechssl[synth])

pr: phones; asr: words; ks: keywords; qbe: documents and spoken queries; sid: who of 40 speaks; asv: whether one voice speaks in two
recordings; sd: who of two speaks when; ic: intents; sf: slots of commands; style: in which way (in the place of er, emotions);
se: speech in noise; ss: two voices at once. Each is a folder OUT/TASK with card.json and manifests for train, dev and test (qbe:
documents, dev and test); pr and asr share recordings, OUT/sentences. No voice of dev and test is heard in training, but in sid.
What is finished is left alone, what was killed goes on.

  speechssl prepare minisuperb sets
  speechssl prepare minisuperb sets --tasks ks sid --share 0.1
"""
FSDD = """digits of real voices (Free Spoken Digit Dataset) as sets for KS and SID

3,000 recordings of six speakers, read as they come: github.com/Jakobovski/free-spoken-digit-dataset.

  speechssl prepare fsdd free-spoken-digit-dataset/ tasks-fsdd
"""
MINISUPERB_TASKS = ["pr", "asr", "ks", "qbe", "sid", "asv", "sd", "ic", "sf", "style", "se", "ss"]


def add_prepare(verbs: Any) -> None:
    what = add_group(verbs, "prepare", "turn a corpus into JSONL manifests and 16 kHz audio")
    for add in (_add_minisqa, _add_minisuperb, _add_fsdd, add_spoken_qa, add_published, add_miniature):
        add(what)


def _add_minisqa(what: Any) -> None:
    verb = add_verb(what, "minisqa", _prepare_minisqa, MINISQA)
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


def _prepare_minisqa(o: argparse.Namespace) -> None:
    from speechssl.synth.minisqa import Settings, prepare

    counts = {"train": o.passages, "dev": o.dev_passages, "test": o.test_passages}
    card = prepare(o.out, Settings(o.language, counts, o.seed, o.questions, o.unanswerable, o.reference), o.workers)
    print(f"{o.out}: MiniSQA {o.language}, {', '.join(f'{n} {s}' for s, n in counts.items())} passages, data {card['manifests']}")


def _add_minisuperb(what: Any) -> None:
    verb = add_verb(what, "minisuperb", _prepare_minisuperb, MINISUPERB)
    verb.add_argument("out", type=Path, help="folder to make; gets a folder a set")
    verb.add_argument("--tasks", nargs="+", default=MINISUPERB_TASKS, help="which sets")
    verb.add_argument("--share", type=share, default=1.0, help="of the usual number of utterances (asr: 900 + 100 + 200)")
    verb.add_argument("--seed", type=whole, default=0, help="same seed, same bytes")
    verb.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="processes; the bytes do not depend on it")


def _prepare_minisuperb(o: argparse.Namespace) -> None:
    from speechssl.synth.minisuperb import Settings, prepare, some_of

    for task, card in prepare(o.out, Settings(some_of(o.tasks, o.share), o.seed), o.workers).items():
        print(f"{o.out / task}: {', '.join(f'{n} {split}' for split, n in card['sizes'].items())} utterances")


def _add_fsdd(what: Any) -> None:
    verb = add_verb(what, "fsdd", _prepare_fsdd, FSDD)
    verb.add_argument("source", type=Path, help="the dataset, or its folder recordings/")
    verb.add_argument("out", type=Path, help="folder to make: audio/, ks/, sid/")


def _prepare_fsdd(o: argparse.Namespace) -> None:
    from speechssl.data.fsdd import prepare_fsdd

    print(f"{o.out}: {' and '.join(prepare_fsdd(o.source, o.out))}")

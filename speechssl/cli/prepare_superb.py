"""`speechssl prepare`: the published sets of SUPERB, from folders that were downloaded before."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from speechssl.cli.shared import add_verb

COMMON = """Recordings stay where they are and are not copied; nothing is downloaded. Counts are compared with the published ones
before anything is written; --any-count takes a part of the corpus."""


@dataclass(frozen=True)
class Published:
    """A verb: `prepare_<module>` of speechssl.corpora.superb.<module>."""

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


VERBS = {
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
    for name, published in VERBS.items():
        verb = add_verb(what, name, _prepare, f"{published.about}\n{COMMON}\n")
        verb.add_argument("source", type=Path, help=published.source)
        verb.add_argument("out", type=Path, help=f"folder to make: {published.folders}")
        if published.flags:
            published.flags(verb)
        verb.add_argument("--any-count", action="store_true", help="only warn where counts are not the published ones")
        verb.set_defaults(published=published)


def _prepare(o: argparse.Namespace) -> None:
    module = import_module(f"speechssl.corpora.superb.{o.published.module}")
    given = {name: getattr(o, name) for name in ("tasks", "lexicons", "diarization") if hasattr(o, name)}
    prepare = getattr(module, f"prepare_{o.published.module}")
    for folder, card in prepare(o.source, o.out, any_count=o.any_count, **given).items():
        print(f"{o.out / folder}: {', '.join(f'{n:,} {split}' for split, n in card['sizes'].items())} recordings")

"""These are the options of `speechssl prepare`: the corpora of spoken question answering and the
sets of SUPERB, from local folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from speechssl.errors import InputError
from speechssl.options import Count, Whole, argument, option
from speechssl.processes import count_cores

CORES = count_cores()
PROCESSES = "number of processes; the output does not depend on it"


@dataclass(frozen=True, kw_only=True)
class SpokenQA:
    """All corpora of spoken question answering share these options."""

    FOOTER: ClassVar[str] = """

Any part of the corpus will do; missing splits are named in the report. Nothing is downloaded, and
nothing is dropped silently: OUT/data_report.json has the counts beside the published ones, hours,
irregularities and how they were handled, and OUT/set_aside.jsonl has every item that was left out,
with the reason. Finished work is kept; a killed run resumes with the same command."""

    source: Path = argument("folder with the files listed above, or one of these files")
    out: Path = argument(
        "folder to make: card.json, data_report.json, set_aside.jsonl and a folder a split"
    )
    passages: Count | None = option(
        None,
        "only the first N passages with questions of every split; the counts in the report "
        "are those of the whole corpus",
    )
    speak: bool = option(
        False,
        "synthesise speech for what has no recording, marked as synthetic (needs speechssl[synth])",
    )
    synthesiser: Literal["espeak-ng", "flite", "festival", "kokoro"] = option(
        "espeak-ng",
        "synthesiser of --speak: espeak-ng, whose voices differ by split; kokoro (neural, noise "
        "drawn anew each time); flite or festival, which speak English only",
    )
    seed: Whole = option(0, "seed of the voices of --speak")
    workers: Count = option(CORES, PROCESSES)


@dataclass(frozen=True, kw_only=True)
class SpokenQAOrText(SpokenQA):
    """The texts of such a corpus can also be prepared without recordings."""

    audio: bool = option(True, "use the recordings, where there are any; else only texts")


@dataclass(frozen=True, kw_only=True)
class Nmsqa(SpokenQA):
    """prepare NMSQA, spoken SQuAD, with real speakers in the test set
    (github.com/DanielLin94144/DUAL-textless-SQA)

    SOURCE holds one of these releases:

      parquet                SOURCE/dev.parquet (audio in it, or beside it)
      the original release
          SOURCE/dev/meta-dev.csv, dev-answer-span.csv, dev-hash2question.json,
          *_audios/*.mp3, *.TextGrid
      Hugging Face           SOURCE/data/*.parquet of voidful/NMSQA

      speechssl prepare nmsqa NMSQA corpora/nmsqa
    """


@dataclass(frozen=True, kw_only=True)
class Odsqa(SpokenQAOrText):
    """prepare ODSQA, DRCD read by 20 Mandarin speakers, and DRCD-TTS and DRCD-backtrans
    (github.com/Chia-Hsuan-Lee/ODSQA)

    What is read, as far as it is there:

      SOURCE/ODSQA_spokenq_test-v1.1.json, ODSQA_textq_test-v1.1.json
          splits test-spokenq, test-textq
      SOURCE/*tts*.json, *backtrans*.json (with dev or test in the name)
          splits train-tts, train-backtrans, dev-tts, ...
      SOURCE/DRCD_dev.json
          optional: the reference text
      SOURCE/.../PARAGRAPH-SENTENCE.wav, .../questions/QUESTION.wav
          optional: 16 kHz, e.g. 1147-5-1.wav

      speechssl prepare odsqa ODSQA corpora/odsqa
    """


@dataclass(frozen=True, kw_only=True)
class ToeflQa(SpokenQA):
    """prepare TOEFL-QA, stories of the TOEFL listening test with multiple choice
    (github.com/iamyuanchung/TOEFL-QA)

      SOURCE/data/train|dev|test/tpo_1-conversation_1_1, ...
          SENTENCE, QUESTION and four OPTION lines

    Its audio was never published: with --speak it is synthesised.

      speechssl prepare toefl-qa TOEFL-QA corpora/toefl_qa --speak
    """


@dataclass(frozen=True, kw_only=True)
class SpokenSquad(SpokenQAOrText):
    """prepare Spoken-SQuAD, SQuAD synthesised and transcribed by a recogniser
    (github.com/Chia-Hsuan-Lee/Spoken-SQuAD)

    What is read, as far as it is there:

      SOURCE/spoken_train-v1.1.json, spoken_test-v1.1.json                splits train, test
      SOURCE/spoken_test-v1.1_WER44.json, ..._WER54.json
          splits test-wer44, test-wer54, scored by text only
      SOURCE/dev-v1.1.json
          optional: SQuAD's own, the reference text
      SOURCE/.../train_wav|dev_wav/ARTICLE_PARAGRAPH_SENTENCE.wav
          optional: Spoken-SQuAD_audio.zip, unpacked

      speechssl prepare spoken-squad Spoken-SQuAD corpora/spoken_squad
    """


@dataclass(frozen=True, kw_only=True)
class SlueSqa5(SpokenQA):
    """prepare SLUE-SQA-5, questions and documents of real speech
    (huggingface.co/datasets/asapp/slue-phase-2)

    What is read, as far as it is there:

      SOURCE/train-*.parquet, validation-*.parquet, test-*.parquet, verified_test-*.parquet
      (recordings inside)
      or the unpacked zip:
      SOURCE/slue-sqa5_fine-tune.tsv, slue-sqa5_dev.tsv, slue-sqa5_test.tsv,
      slue-sqa5_verified-test.tsv
      SOURCE/fine-tune|dev|test/question|document/*.wav, .../word2time/*.txt

      speechssl prepare slue-sqa5 slue-phase-2 corpora/slue_sqa5
    """


@dataclass(frozen=True, kw_only=True)
class HeySquad(SpokenQAOrText):
    """prepare HeySQuAD, questions of SQuAD spoken by people
    (huggingface.co/datasets/yijingwu/HeySQuAD_human)

    What is read, as far as it is there:

      SOURCE/data/train-*.parquet, validation-*.parquet
          splits train, dev (or train-machine, dev-machine)
      SOURCE/HeySQuAD_json/*/dev-common-human-transcribed-1002.json, ...
          splits of these names, text only

      speechssl prepare heysquad HeySQuAD_human corpora/heysquad
    """


@dataclass(frozen=True, kw_only=True)
class SquadSrc(SpokenQAOrText):
    """prepare SQuAD-SRC, all questions of SQuAD 1.1 read by 24 people of six countries
    (github.com/tangyixuan/SQuAD-SRC)

    What is read, as far as it is there:

      SOURCE/train-v1.1.json, dev-v1.1.json
          SQuAD's own: contexts, questions, answers
      SOURCE/.../fid2qid_train.csv, fid2qid_dev.csv
          numbers of recordings and SQuAD's ids
      SOURCE/.../*.wav
          with the number and the speaker in their names: TRAIN000001, SPK001

      speechssl prepare squad-src SQuAD-SRC corpora/squad_src
    """


@dataclass(frozen=True, kw_only=True)
class SdQa(SpokenQAOrText):
    """prepare SD-QA, questions of TyDi QA asked in 24 dialects of five languages
    (github.com/ffaisal93/SD-QA)

    What is read, as far as it is there:

      SOURCE/dev|test/eng/usa/english.dev.usa-en-US.jsonl.gz
          split dev-eng-usa: articles, answers, transcripts
      SOURCE/dev|test/eng/usa/metadata.csv, wav_eng/ID.wav
          speakers and recordings
      SOURCE/dev|test/eng/english.dev.txt
          the questions as they were written

    SOURCE may be the folder of one language or dialect.

      speechssl prepare sd-qa SD-QA/dev/eng corpora/sd_qa
    """


@dataclass(frozen=True, kw_only=True)
class Squad(SpokenQAOrText):
    """prepare plain SQuAD JSON, 1.1 or 2.0, with or without audio
    (rajpurkar.github.io/SQuAD-explorer)

    What is read, as far as it is there:

      SOURCE/train-v1.1.json, dev-v1.1.json
          train, dev or test by name, else the name is the split
      SOURCE/audio/[SPLIT/]ID.wav
          of a passage (id, or ARTICLE_PARAGRAPH from 0) or a question
      SOURCE/audio/[SPLIT/]ID_0.wav, ID_1.wav, ...                    a passage in segments
      SOURCE/audio/[SPLIT/]ID.words.json
          optional: [["word", start, end], ...] of a passage, seconds

      speechssl prepare squad dev-v1.1.json corpora/squad --speak
    """

    language: str = option("en", "language of texts and speech: en or zh")


@dataclass(frozen=True, kw_only=True)
class Drcd(Squad):
    """prepare plain DRCD JSON (Mandarin), with or without audio (github.com/DRCKnowledgeTeam/DRCD)

    What is read, as far as it is there:

      SOURCE/DRCD_training.json, DRCD_dev.json, DRCD_test.json
          train, dev or test by name, else the name is the split
      SOURCE/audio/[SPLIT/]ID.wav
          of a passage or a question, e.g. 1147-5.wav, 1147-5-1.wav
      SOURCE/audio/[SPLIT/]ID_0.wav, ID_1.wav, ...                    a passage in segments
      SOURCE/audio/[SPLIT/]ID.words.json
          optional: [["word", start, end], ...] of a passage, seconds

      speechssl prepare drcd DRCD corpora/drcd --speak
    """

    language: str = option("zh", "language of texts and speech: en or zh")


@dataclass(frozen=True, kw_only=True)
class TableCorpus:
    """prepare your own corpus, from tables of passages and of questions

      SOURCE/[SPLIT/]passages.csv      audio (and id, text, transcript, speaker, language, words)
      SOURCE/[SPLIT/]questions.csv     passage, audio or text, answers (and id, speaker, language)

    Tables are CSV, TSV, JSONL or Parquet, or what `datasets.Dataset.save_to_disk` writes. Paths are
    relative to the table. An answer is a column `answer` with `start` and `end` in seconds, or
    `answers` as SQuAD has them; where there are no times, `speechssl align` finds them. Without
    SPLIT the split is test. `speechssl.make_corpus` takes rows in memory.

      speechssl prepare table mine corpora/mine
    """

    source: Path = argument("folder with the tables")
    out: Path = argument(
        "folder to make: card.json, data_report.json, set_aside.jsonl and a folder a split"
    )
    language: str = option("en", "language of rows that do not say: en or zh")


@dataclass(frozen=True, kw_only=True)
class SuperbSet:
    """The published sets of SUPERB share these options."""

    FOOTER: ClassVar[str] = """

Recordings stay where they are and are not copied; nothing is downloaded. Counts are compared with
the published ones before anything is written; --any-count takes a part of the corpus."""

    source: Path = argument("folder of the corpus, with the layout above")
    out: Path = argument("folder to make, with a folder for each task")
    any_count: bool = option(
        False, "accept counts that differ from the published ones, with a warning"
    )


@dataclass(frozen=True, kw_only=True)
class LibriSpeech(SuperbSet):
    """prepare LibriSpeech for PR and ASR (openslr.org/12)

      LibriSpeech/train-clean-100|dev-clean|test-clean/SPEAKER/CHAPTER/*.flac and *.trans.txt
      librispeech-lexicon.txt (openslr.org/11), and s3prl's librispeech-lexicon-allothers-g2p.txt
      for the words that it lacks

      speechssl prepare librispeech LibriSpeech superb \\
        --lexicon librispeech-lexicon.txt librispeech-lexicon-allothers-g2p.txt
      speechssl prepare librispeech LibriSpeech superb --tasks asr

    SOURCE is the folder LibriSpeech; OUT gets pr/ and asr/.
    """

    tasks: tuple[Literal["pr", "asr"], ...] = option(("pr", "asr"), "sets to make", least=1)
    lexicon: tuple[Path, ...] = option(
        (),
        "for pr: files of words and their phones; the first file that has a word is used",
        least=1,
    )

    def __post_init__(self) -> None:
        if "pr" in self.tasks and not self.lexicon:
            raise InputError(
                "pr needs the phones of words; give --lexicon librispeech-lexicon.txt "
                "(openslr.org/11), or --tasks asr"
            )


@dataclass(frozen=True, kw_only=True)
class SpeechCommands(SuperbSet):
    """prepare Speech Commands v1 for KS (download.tensorflow.org/data/speech_commands_v0.01.tar.gz
    and ..._test_set_v0.01.tar.gz)

      SOURCE/speech_commands_v0.01/yes|no|.../*.wav and _background_noise_/*.wav
      SOURCE/speech_commands_test_set_v0.01/yes|no|.../_unknown_|_silence_/*.wav

    Silence is cut from the background noise into OUT/ks/audio.

    SOURCE is the folder that holds both archives, unpacked; OUT gets ks/.
    """


@dataclass(frozen=True, kw_only=True)
class Quesst14(SuperbSet):
    """prepare the English part of QUESST 2014 for QbE
    (speech.fit.vutbr.cz/files/quesst14Database.tgz)

      quesst14Database/Audio|dev_queries|eval_queries/*.wav
      quesst14Database/scoring/language_key_utterances|dev|eval.lst and
      groundtruth_quesst14_dev|eval/*.rttm

    SOURCE is the folder quesst14Database; OUT gets qbe/.
    """


@dataclass(frozen=True, kw_only=True)
class VoxCeleb1(SuperbSet):
    """prepare VoxCeleb1 for SID and ASV (robots.ox.ac.uk/~vgg/data/voxceleb)

      SOURCE/dev|test/wav/id10001/VIDEO/00001.wav
      SOURCE/iden_split.txt, and SOURCE/veri_test.txt (or voxceleb1_test_v2.txt) for asv

    SOURCE is the folder that holds dev and test; OUT gets sid/ and asv/.
    """

    tasks: tuple[Literal["sid", "asv"], ...] = option(("sid", "asv"), "sets to make", least=1)


@dataclass(frozen=True, kw_only=True)
class Libri2Mix(SuperbSet):
    """prepare Libri2Mix for SD and SS (made by github.com/ftshijt/LibriMix from LibriSpeech and
    WHAM)

      bash generate_librimix.sh CORPORA
      python3 scripts/prepare_diarization.py --target_dir CORPORA/diarization \\
        --source_dir CORPORA/Libri2Mix/wav16k/max/metadata

      ss: Libri2Mix/wav16k/min/train-100|dev|test/mix_clean|s1|s2/*.wav
      sd: CORPORA/diarization/train|dev|test/wav.scp and rttm (or segments and utt2spk)

      speechssl prepare libri2mix CORPORA/Libri2Mix superb --diarization CORPORA/diarization

    SOURCE is the folder Libri2Mix; OUT gets sd/ and ss/.
    """

    tasks: tuple[Literal["sd", "ss"], ...] = option(("sd", "ss"), "sets to make", least=1)
    diarization: Path | None = option(
        None, "for sd: output folder of prepare_diarization.py (train, dev and test)"
    )

    def __post_init__(self) -> None:
        if "sd" in self.tasks and self.diarization is None:
            raise InputError(
                "sd needs the turns; give --diarization the folder that "
                "prepare_diarization.py wrote, or --tasks ss"
            )


@dataclass(frozen=True, kw_only=True)
class FluentSpeechCommands(SuperbSet):
    """prepare Fluent Speech Commands for IC (fluent.ai, after a form)

      fluent_speech_commands_dataset/wavs/speakers/SPEAKER/*.wav
      fluent_speech_commands_dataset/data/train_data.csv|valid_data.csv|test_data.csv

    SOURCE is the folder fluent_speech_commands_dataset; OUT gets ic/.
    """


@dataclass(frozen=True, kw_only=True)
class AudioSnips(SuperbSet):
    """prepare Audio SNIPS for SF (prepared by s3prl's preprocess/snips_prepare_data.sh, or the
    archive that its docs/superb.md links)

      SNIPS/train|valid|test/VOICE-snips-SPLIT-NUMBER.wav
      SNIPS/all.iob.snips.txt

    SOURCE is the folder SNIPS; OUT gets sf/.
    """


@dataclass(frozen=True, kw_only=True)
class Iemocap(SuperbSet):
    """prepare IEMOCAP in five folds for ER (sail.usc.edu/iemocap, after a form)

      IEMOCAP_full_release/Session1|...|Session5/dialog/EmoEvaluation/*.txt
      IEMOCAP_full_release/Session1|...|Session5/sentences/wav/DIALOGUE/*.wav

    SOURCE is the folder IEMOCAP_full_release; OUT gets er/fold-1 to fold-5.
    """


@dataclass(frozen=True, kw_only=True)
class VoiceBankDemand(SuperbSet):
    """prepare VoiceBank-DEMAND, 28 speakers, for SE (datashare.ed.ac.uk/handle/10283/2791)

      SOURCE/clean_trainset_28spk_wav|noisy_trainset_28spk_wav|clean_testset_wav|noisy_testset_wav/*.wav

    Folders whose names end in _16k are preferred. Both 48 kHz and 16 kHz will do.

    SOURCE is the folder that holds the four folders of recordings; OUT gets se/.
    """


@dataclass(frozen=True, kw_only=True)
class Fsdd:
    """prepare the Free Spoken Digit Dataset (real voices) as sets for KS and SID

    3,000 recordings of six speakers, read as they are:
    github.com/Jakobovski/free-spoken-digit-dataset.

      speechssl prepare fsdd free-spoken-digit-dataset/ tasks-fsdd
    """

    source: Path = argument("the dataset, or its folder recordings/")
    out: Path = argument("folder to make: audio/, ks/, sid/")

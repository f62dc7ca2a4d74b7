"""Any SQuAD or DRCD JSON, with audio beside it or none: `squad` (English) and `drcd` (Mandarin).

  SOURCE/*.json                    train, dev or test by name (else the name is the split); one file will do as well
  SOURCE/audio/[SPLIT/]NAME.wav    a passage or a question, NAME its id; a passage without an id is ARTICLE_PARAGRAPH, from 0
  SOURCE/audio/[SPLIT/]NAME_3.wav  ... or its segments, numbered from 0 or 1
  SOURCE/audio/[SPLIT/]NAME.words.json  optional, for a passage: [["word", start, end], ...], seconds in its (joined) recording

WAV, FLAC, MP3 or OGG. With the times of a passage's words its answers get times, through their offsets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from speechssl.corpora.records import Passage, Question
from speechssl.corpora.spoken_qa.drafts import Draft
from speechssl.corpora.spoken_qa.ledger import Ledger
from speechssl.corpora.spoken_qa.preparing import Job, Wanted, given, nothing_found, prepared
from speechssl.corpora.spoken_qa.sounding import Take, Takes, audio_files, take_of
from speechssl.corpora.spoken_qa.squad_records import Style, drafted
from speechssl.corpora.spoken_qa.squad_schema import Paragraph, is_squad, read_squad
from speechssl.corpora.spoken_qa.word_times import read_words, with_times
from speechssl.errors import InputError
from speechssl.text import language_of

LAYOUT = "give a SQuAD or DRCD JSON file, or the folder that holds train, dev or test JSON files and, if there is audio, audio/"
ABOUT = {
    "squad": {
        "title": "SQuAD JSON",
        "language": "en",
        "source": "rajpurkar.github.io/SQuAD-explorer, arXiv 1606.05250, 1806.03822",
    },
    "drcd": {"title": "DRCD JSON", "language": "zh", "source": "github.com/DRCKnowledgeTeam/DRCD, arXiv 1806.00920"},
}
PUBLISHED = {  # by the name of the published file
    "train-v1.1.json": ("train", 18_896, 87_599),
    "dev-v1.1.json": ("dev", 2_067, 10_570),
    "train-v2.0.json": ("train", 19_035, 130_319),
    "dev-v2.0.json": ("dev", 1_204, 11_873),
    "DRCD_training.json": ("train", 8_014, 26_936),
    "DRCD_dev.json": ("dev", 1_000, 3_524),
    "DRCD_test.json": ("test", 1_000, 3_493),
}
SPLITS = {"train": re.compile(r"train"), "dev": re.compile(r"dev|valid"), "test": re.compile(r"test")}
SEGMENT = re.compile(r"(.+)_(\d+)")
ENOUGH = 200  # paragraphs that tell what a file is written in
CHINESE, LETTER = re.compile(r"[\u3400-\u9fff]"), re.compile(r"[^\W\d_]")


def prepare_squad(source: Path | str, out: Path | str, wanted: Wanted = Wanted(), language: str = "en") -> dict[str, Any]:
    """Write `out` and return its data report. language: of texts and speech.

    Raises InputError for a source without such a file, a damaged file, a language that is not its own, or word times that are none.
    """
    return _prepare("squad", source, out, wanted, language)


def prepare_drcd(source: Path | str, out: Path | str, wanted: Wanted = Wanted(), language: str = "zh") -> dict[str, Any]:
    """`prepare_squad` for Mandarin."""
    return _prepare("drcd", source, out, wanted, language)


def _prepare(corpus: str, source: Path | str, out: Path | str, wanted: Wanted, language: str) -> dict[str, Any]:
    found = given(Path(source), LAYOUT)
    language = language_of(language)  # refuses one without rules
    files = _files(found)
    if not files:
        raise nothing_found(found, LAYOUT)
    sounds = {split: _recordings(found, split) for split in files} if wanted.audio and found.is_dir() else {}
    heard = {"recordings": {split: len(s) for split, s in sounds.items()}} if any(sounds.values()) else {}
    about = ABOUT[corpus] | {"language": language}
    options = {"language": language, **heard}
    job = Job(corpus, found, Path(out), files, _published(files), about, options, wanted)

    def read(ledger: Ledger) -> Mapping[str, tuple[Draft, Takes]]:
        return {split: _read(split, path, found, language, sounds.get(split, {}), ledger) for split, path in files.items()}

    return prepared(job, read)


def _files(source: Path) -> dict[str, Path]:
    """Split -> its file. Raises InputError where two files claim to be one split."""
    found: dict[str, Path] = {}
    for path in sorted(source.glob("*.json")) if source.is_dir() else [source]:
        if path.name.startswith(".") or (source.is_dir() and not is_squad(path)):
            continue
        split = split_of(path)
        if split in found:
            raise InputError(f"both {found[split]} and {path} look like {split}; give one of them, or rename one")
        found[split] = path
    return found


def split_of(path: Path) -> str:
    """train, dev or test by the name of a file, or else its name."""
    named = (split for split, pattern in SPLITS.items() if pattern.search(path.stem.lower()))
    return next(named, re.sub(r"[^\w.-]+", "-", path.stem))


def _published(files: Mapping[str, Path]) -> dict[str, dict[str, int]]:
    known = [PUBLISHED[path.name] for path in files.values() if path.name in PUBLISHED]
    return {split: {"passages": passages, "questions": questions} for split, passages, questions in known}


def _read(split: str, path: Path, source: Path, language: str, sounds: Mapping[str, Path], ledger: Ledger) -> tuple[Draft, Takes]:
    paragraphs = read_squad(path)
    _check_language(path, paragraphs, language)
    draft, _ = drafted(split, paragraphs, Style(language), ledger)
    takes = _takes(draft, sounds)
    folder = _audio_folder(source, split)
    return (_timed(split, draft, takes, folder, ledger) if takes.passages else draft), takes


def _check_language(path: Path, paragraphs: Sequence[Paragraph], language: str) -> None:
    """Raises InputError for Chinese that would be taken for another language, or the reverse: its rules would be wrong."""
    texts = [text for p in paragraphs[:ENOUGH] for text in (p.context, *(q.text for q in p.asked))]
    chinese, letters = (sum(len(pattern.findall(text)) for text in texts) for pattern in (CHINESE, LETTER))
    if language != "zh" and 2 * chinese > letters:
        raise InputError(
            f"{path} is mostly in Chinese characters, which the rules of {language!r} do not fit; use `speechssl prepare drcd`, "
            "or say --language zh"
        )
    if language == "zh" and 10 * chinese < letters:
        raise InputError(
            f"{path} has hardly a Chinese character, which the rules of 'zh' are for; use `speechssl prepare squad`, "
            "or say --language en"
        )


def _audio_folder(source: Path, split: str) -> Path:
    audio = source / "audio"
    return audio / split if (audio / split).is_dir() else audio


def _recordings(source: Path, split: str) -> dict[str, Path]:
    """Name of a file without its suffix -> the file."""
    folder = _audio_folder(source, split)
    return {path.stem: path for path in audio_files(folder)} if folder.is_dir() else {}


def _takes(draft: Draft, sounds: Mapping[str, Path]) -> Takes:
    segments: dict[str, dict[int, Path]] = {}
    for name, path in sounds.items():
        if parts := SEGMENT.fullmatch(name):
            segments.setdefault(parts[1], {})[int(parts[2])] = path
    passages = {p.id: take for p in draft.passages if (take := _passage_take(p, sounds, segments))}
    questions = {q.id: Take((sounds[q.id],)) for q in draft.questions if q.id in sounds}
    used = {path for take in (*passages.values(), *questions.values()) for path in take.paths}
    return Takes(passages, questions, sum(path not in used for path in sounds.values()))


def _passage_take(passage: Passage, sounds: Mapping[str, Path], segments: Mapping[str, Mapping[int, Path]]) -> Take | None:
    """The whole recording, or else the segments: from 0 where there is one of that number, else from 1."""
    if passage.id in sounds:
        return Take((sounds[passage.id],))
    if found := segments.get(passage.id):
        return take_of(found, 0 if 0 in found else 1)
    return None


def _timed(split: str, draft: Draft, takes: Takes, folder: Path, ledger: Ledger) -> Draft:
    """With the words of the passages that have them, and times of the answers that lie in such words."""
    words = {p.id: read_words(path) for p in draft.passages if (path := folder / f"{p.id}.words.json").is_file()}
    passages = {p.id: replace(p, words=words.get(p.id, ())) for p in draft.passages}
    questions = [_question(q, passages[q.passage]) for q in draft.questions]
    whole = [q for q in questions if (take := takes.passages.get(q.passage)) and not take.missing]
    if number := sum(answer.start is None for question in whole for answer in question.answers):
        ledger.remark(split, "answers without times", "scored by text only", number)
    return Draft(tuple(passages.values()), questions)


def _question(question: Question, passage: Passage) -> Question:
    return replace(question, answers=with_times(question.answers, passage)) if passage.words else question

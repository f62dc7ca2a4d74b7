"""Write lists of recordings for recipes/units: what encoders are trained on, and what they are
measured on (audio, text, speaker, group).

    python recipes/units/lists.py speech OUT.txt CORPUS FLITE PEOPLE.txt \\
      --passages 260 [--dtw openai/whisper-tiny.en --layer 4]
    python recipes/units/lists.py repeat OUT.txt SPEECH.txt NAME=N ...       e.g. kokoro=3
    python recipes/units/lists.py measure FOLDER CORPUS \\
      --others PIPER FESTIVAL [--fsdd FOLDER] [--precise FOLDER]

OUT.reference.jsonl says, for texts that the neutral voice of CORPUS reads as well, where in that
reading every word is: parallel speech, of which only the arms with `reference` make use. With --dtw
the frames of both readings are matched, too, every three words by themselves: inside a word
synthesisers differ in what they stretch. Folders and lists that do not exist are left out.
`repeat` copies such a list, in which the recordings of a corpus then occur N times.
"""

import csv
import json
import random
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from mix import copies_of
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.data.records import Passage, load_corpus, read_lines
from speechssl.units.features import Features, load_features

MATCHED_WORDS = 3  # frames are matched within so many words
QUESTIONS = 70  # of a split of MiniSQA, the first of a passage each
Measured = tuple[str, Path, str, str, str]  # id, audio, text, speaker, group


# ---- lists to train on


def list_speech(options: Namespace) -> None:
    """List training passages of every corpus, and the neutral readings parallel to them."""
    features = load_features(options.dtw, options.layer) if options.dtw else None
    corpus = options.corpora[0]
    passages = load_corpus(corpus, "train").passages
    neutral = read_neutral(corpus)
    paths, lines = [], []
    for source in options.corpora:
        if source.is_file():
            paths += read_list(source)
        if not source.is_dir():
            continue
        data = load_corpus(source, "train")
        count = min(options.passages, len(data.passages))
        sampled = random.Random(0).sample(sorted(data.passages), count)
        for name in tqdm(sampled, f"times of {source.name}", disable=features is None):
            path = data.path(data.passages[name]).resolve()
            paths.append(path)
            if name not in neutral or name not in passages:
                continue
            passage, original = data.passages[name], passages[name]
            if passage.text != original.text:
                continue
            anchors, audio = neutral[name]
            if source != corpus:
                if len(passage.words) != len(original.words):
                    continue
                anchors = compose_anchors(passage, original, anchors)
                if features:
                    ours = normalise_frames(path, features)
                    theirs = normalise_frames(audio, features)
                    anchors = match_frames(anchors, ours, theirs, features.grid.frame_rate)
            line = {"id": str(path.with_suffix("")), "audio": str(audio)}
            lines.append(line | {"anchors": anchors.round(5).tolist()})
    write_speech(options.out, [Path(path).resolve() for path in paths], lines)


def read_neutral(corpus: Path) -> dict[str, tuple[np.ndarray, Path]]:
    """Return, by passage, anchors (A, 2) and the recording of the neutral voice; {} where there is
    none. Anchors: seconds of every word in the corpus' own reading, and in the neutral voice's."""
    path = corpus / "train" / "reference.jsonl"
    neutral = {}
    if path.is_file():
        for _, line in read_lines(path):
            audio = (corpus / line["audio"]).resolve()
            neutral[line["id"]] = (np.array(line["anchors"]), audio)
    return neutral


def compose_anchors(passage: Passage, original: Passage, anchors: np.ndarray) -> np.ndarray:
    """Return the anchors (A, 2) of another reading of a passage, by way of the original one, which
    `anchors` were made for.

    Words begin and end together: pauses, which differ most between synthesisers, are not stretched
    into words.
    """
    pairs = [(0.0, 0.0)]
    for word, same in zip(passage.words, original.words, strict=True):
        pairs += [(word.start, same.start), (word.end, same.end)]
    times = np.maximum.accumulate(np.array(pairs), axis=0)
    return np.stack([times[:, 0], np.interp(times[:, 1], *anchors.T)], axis=1)


def normalise_frames(path: Path, features: Features) -> np.ndarray:
    """Return the frames (T, D) of a recording: every dimension with mean 0 and variance 1, every
    frame with length 1."""
    frames = torch.cat(list(features.stream(read_audio(path)))).numpy()
    frames = (frames - frames.mean(0)) / (frames.std(0) + 1e-5)
    return frames / np.linalg.norm(frames, axis=1, keepdims=True)


def match_frames(
    anchors: np.ndarray, ours: np.ndarray, theirs: np.ndarray, rate: float
) -> np.ndarray:
    """Return an anchor for every frame of ours, by dynamic time warping between the borders of
    every third word.

    anchors: (A, 2), seconds in both readings at the begin and end of every word; ours: (T, D),
    theirs: (T', D), frames of the two readings; rate: frames a second.
    """
    from librosa.sequence import dtw

    lengths = [len(ours), len(theirs)]
    times = np.vstack([anchors, [lengths[0] / rate, lengths[1] / rate]])
    frames = np.maximum.accumulate(np.round(times * rate).astype(int))
    frames = np.minimum(frames, lengths)
    last = len(frames) - 1
    # every word has two anchors, and [0, 0] comes before the first
    borders = frames[[0, *range(1, last, 2 * MATCHED_WORDS), last]]
    found = np.interp(np.arange(len(ours)), *frames.T)
    for (begin, start), (end, stop) in pairwise(borders):
        if end > begin and stop > start:
            # a frame of ours may be matched with several: the mean of these
            path = dtw(C=1 - ours[begin:end] @ theirs[start:stop].T)[1]
            total, count = np.zeros(end - begin), np.zeros(end - begin)
            np.add.at(total, path[:, 0], path[:, 1])
            np.add.at(count, path[:, 0], 1)
            found[begin:end] = start + total / count
    return np.stack([np.arange(len(ours)) + 0.5, np.maximum.accumulate(found) + 0.5], axis=1) / rate


def repeat_recordings(options: Namespace) -> None:
    """Copy a list, with links to the recordings of some corpora: ids are paths, and each occurs
    once."""
    paths = read_list(options.speech)
    reference = read_lines(options.speech.with_suffix(".reference.jsonl"))
    readings = {line["id"]: line for _, line in reference}
    for name, copies in options.copies:
        for path in [Path(p) for p in paths if f"/{name}/" in p]:
            for number in range(2, copies + 1):
                link = options.out.with_suffix("").absolute() / f"{name}-{number}" / path.name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.unlink(missing_ok=True)
                link.symlink_to(path)
                paths.append(str(link))
                original = str(path.with_suffix(""))
                if original in readings:
                    new = str(link.with_suffix(""))
                    readings[new] = readings[original] | {"id": new}
    write_speech(options.out, paths, list(readings.values()))


def read_list(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def write_speech(out: Path, paths: Sequence[Path | str], lines: Sequence[dict]) -> None:
    """Write a list of recordings, and the readings that some of them are parallel to."""
    out.write_text("".join(f"{path}\n" for path in paths))
    reference = "".join(f"{json.dumps(line)}\n" for line in lines)
    out.with_suffix(".reference.jsonl").write_text(reference)
    print(f"{out}: {len(paths)} recordings, {len(lines)} of them with a reference reading")


# ---- lists to measure on


def list_measured(options: Namespace) -> None:
    """Write a list for every other synthesiser, for digits and for two words spoken by people."""
    lists: dict[str, list[Measured]] = {}
    for other in options.others:
        for split in ("dev", "test"):
            if (other / split / "questions.jsonl").is_file():
                lists[f"{split}-{other.name}"] = pair_questions(options.corpus, other, split)
    if options.fsdd:
        lists |= list_digits(options.fsdd)
    if options.precise:
        lists["test-precise"] = list_precise(options.precise)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, rows in lists.items():
        if not rows:
            continue
        with (options.out / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("id", "audio", "text", "speaker", "group"))
            writer.writerows((name, path.resolve(), *rest) for name, path, *rest in rows)
        print(f"{options.out / name}.csv: {len(rows)} recordings")


def pair_questions(corpus: Path, other: Path, split: str) -> list[Measured]:
    """Pair the first question of every passage, read by espeak-ng and by another synthesiser."""
    ours, theirs = load_corpus(corpus, split), load_corpus(other, split)
    first = {question.id: question for question in ours.questions if question.id.endswith("-0")}
    same = [q for q in theirs.questions if q.id in first and first[q.id].text == q.text]
    rows = []
    for question in same[:QUESTIONS]:
        readings = (
            (ours, first[question.id], "espeak-ng"),
            (theirs, question, other.name),
        )
        for data, reading, group in readings:
            name = f"{group}-{question.id}"
            rows.append((name, data.path(reading), question.text, reading.speaker, group))
    return rows


def list_digits(folder: Path) -> dict[str, list[Measured]]:
    """List the digits of FSDD (7_jackson_3.wav): recordings 5 to 9 are dev, 0 to 4 test."""
    lists: dict[str, list[Measured]] = {}
    for split, numbers in (("dev", range(5, 10)), ("test", range(5))):
        for path in sorted(folder.rglob("*.wav")):
            digit, speaker, number = path.stem.split("_")
            if int(number) in numbers:
                row = (path.stem, path, digit, speaker, "people: digits")
                lists.setdefault(f"{split}-fsdd", []).append(row)
    return lists


def list_precise(folder: Path) -> list[Measured]:
    """List two words of Precise-Community-Data, which does not say who speaks."""
    rows = []
    for word in ("computer", "heychatterbox"):
        for path in sorted((folder / word).rglob("*.wav")):
            rows.append((path.stem, path, word, path.stem, "people, who is not known: two words"))
    return rows


def parse_arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("speech").add_argument
    add("out", type=Path)
    corpora = "corpora, whose training passages are listed, and lists"
    add("corpora", type=Path, nargs="+", help=corpora)
    add("--passages", type=int, default=260, help="most passages of a corpus, drawn at random")
    matched = "encoder whose features are matched; default: times of words alone"
    add("--dtw", metavar="ENCODER", help=matched)
    add("--layer", type=int, help="layer of that encoder")
    add = commands.add_parser("repeat").add_argument
    add("out", type=Path)
    add("speech", type=Path, help="list that `speech` made")
    copies = "folder of a corpus, and how often it occurs"
    add("copies", type=copies_of, nargs="+", metavar="NAME=N", help=copies)
    add = commands.add_parser("measure").add_argument
    add("out", type=Path)
    add("corpus", type=Path, help="MiniSQA by espeak-ng")
    others = "MiniSQA of the same seed by other synthesisers"
    add("--others", type=Path, nargs="+", default=[], help=others)
    add("--fsdd", type=Path)
    add("--precise", type=Path)
    return parser.parse_args()


COMMANDS = {"speech": list_speech, "repeat": repeat_recordings, "measure": list_measured}

if __name__ == "__main__":
    options = parse_arguments()
    COMMANDS[options.command](options)

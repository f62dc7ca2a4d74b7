"""Write lists of recordings for recipes/units: text files of paths that encoders are trained on,
and CSV files (id, audio, text, speaker, group) that they are measured on.

    python recipes/units/lists.py speech OUT.txt CORPUS FLITE PEOPLE.txt \\
      --passages 260 [--dtw openai/whisper-tiny.en --layer 4]
    python recipes/units/lists.py repeat OUT.txt SPEECH.txt NAME=N ...       e.g. kokoro=3
    python recipes/units/lists.py measure FOLDER CORPUS \\
      --others PIPER FESTIVAL [--fsdd FOLDER] [--precise FOLDER]

`speech` lists training passages. A passage may have a reference: the reading of the same text by
the neutral voice of CORPUS. OUT.reference.jsonl says where in the reference every word is, as
anchors (A, 2): seconds in the recording, and seconds in the reference. With --dtw the frames of
both readings are matched, too, within every three words, for synthesisers stretch different parts
of a word. Only the arms with `reference` use this parallel speech. Folders and lists that do not
exist are left out. `repeat` copies such a list, in which the recordings of a corpus then occur N
times.
"""

import csv
import json
import random
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from mix import parse_copies
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.cli import run_program
from speechssl.data.records import Passage, load_corpus, read_lines
from speechssl.units.features import Features, load_features

MATCHED_WORDS = 3  # frames are matched within so many words
QUESTIONS = 70  # of a split of MiniSQA, the first of a passage each


class Measured(NamedTuple):
    """A recording that encoders are measured on is a row of a CSV file."""

    id: str
    audio: Path
    text: str
    speaker: str
    group: str


# ---- lists to train on


class Reference(NamedTuple):
    """A reference is the neutral voice's reading of a passage, and where its words are."""

    anchors: np.ndarray  # (A, 2) seconds in a recording of the passage, and in the reference
    audio: Path


def list_speech(options: Namespace) -> None:
    """List training passages of every corpus, and their references."""
    features = load_features(options.dtw, options.layer) if options.dtw else None
    corpus = options.corpora[0]
    originals = load_corpus(corpus, "train").passages
    references = read_references(corpus)
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
            passage = data.passages[name]
            path = data.path(passage).resolve()
            paths.append(path)
            original, reference = originals.get(name), references.get(name)
            if original is None or reference is None or passage.text != original.text:
                continue
            anchors = reference.anchors
            if source != corpus:
                if len(passage.words) != len(original.words):
                    continue
                anchors = compose_anchors(passage, original, anchors)
                if features:
                    frames = normalise_frames(path, features)
                    reference_frames = normalise_frames(reference.audio, features)
                    rate = features.grid.frame_rate
                    anchors = match_frames(anchors, frames, reference_frames, rate)
            line = {"id": str(path.with_suffix("")), "audio": str(reference.audio)}
            lines.append(line | {"anchors": anchors.round(5).tolist()})
    write_speech(options.out, [Path(path).resolve() for path in paths], lines)


def read_references(corpus: Path) -> dict[str, Reference]:
    """Return passage -> reference, with anchors of the corpus' own reading; {} where the corpus has
    none."""
    path = corpus / "train" / "reference.jsonl"
    references = {}
    if path.is_file():
        for _, line in read_lines(path):
            audio = (corpus / line["audio"]).resolve()
            references[line["id"]] = Reference(np.array(line["anchors"]), audio)
    return references


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
    anchors: np.ndarray, recording: np.ndarray, reference: np.ndarray, rate: float
) -> np.ndarray:
    """Return an anchor for every frame of a recording, (T, 2), by dynamic time warping between the
    borders of every third word.

    anchors: (A, 2), seconds in both readings at the begin and end of every word; recording: (T, D),
    reference: (T', D), frames of the two readings; rate: frames a second.
    """
    from librosa.sequence import dtw

    lengths = [len(recording), len(reference)]
    times = np.vstack([anchors, [lengths[0] / rate, lengths[1] / rate]])
    frames = np.maximum.accumulate(np.round(times * rate).astype(int))
    frames = np.minimum(frames, lengths)
    last = len(frames) - 1
    # every word has two anchors, and [0, 0] comes before the first
    borders = frames[[0, *range(1, last, 2 * MATCHED_WORDS), last]]
    matched = np.interp(np.arange(len(recording)), *frames.T)  # (T,) frames of the reference
    for (begin, reference_begin), (end, reference_end) in pairwise(borders):
        if end > begin and reference_end > reference_begin:
            cosines = recording[begin:end] @ reference[reference_begin:reference_end].T
            _, path = dtw(C=1 - cosines)  # (P, 2) pairs of frames
            # a frame may be matched with several: the mean of these
            total, count = np.zeros(end - begin), np.zeros(end - begin)
            np.add.at(total, path[:, 0], path[:, 1])
            np.add.at(count, path[:, 0], 1)
            matched[begin:end] = reference_begin + total / count
    middles = np.arange(len(recording)) + 0.5
    return np.stack([middles, np.maximum.accumulate(matched) + 0.5], axis=1) / rate


def repeat_recordings(options: Namespace) -> None:
    """Copy a list, and repeat the recordings of some corpora by links to them: a path is the id of
    a recording, and occurs once."""
    paths = read_list(options.speech)
    references = {}  # id of a recording -> line of LIST.reference.jsonl
    for _, line in read_lines(options.speech.with_suffix(".reference.jsonl")):
        references[line["id"]] = line
    for name, copies in options.copies:
        for path in [Path(p) for p in paths if f"/{name}/" in p]:
            for number in range(2, copies + 1):
                link = options.out.with_suffix("").absolute() / f"{name}-{number}" / path.name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.unlink(missing_ok=True)
                link.symlink_to(path)
                paths.append(str(link))
                original = str(path.with_suffix(""))
                if original in references:
                    new = str(link.with_suffix(""))
                    references[new] = references[original] | {"id": new}
    write_speech(options.out, paths, list(references.values()))


def read_list(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def write_speech(out: Path, paths: Sequence[Path | str], lines: Sequence[dict]) -> None:
    """Write a list of recordings, and the references that some of them have."""
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
            writer.writerow(Measured._fields)
            writer.writerows(row._replace(audio=row.audio.resolve()) for row in rows)
        print(f"{options.out / name}.csv: {len(rows)} recordings")


def pair_questions(corpus: Path, other: Path, split: str) -> list[Measured]:
    """Pair the first question of every passage, read by espeak-ng and by another synthesiser."""
    espeak_data, other_data = load_corpus(corpus, split), load_corpus(other, split)
    # ids end in the number of the question
    first = {q.id: q for q in espeak_data.questions if q.id.endswith("-0")}
    same = [q for q in other_data.questions if q.id in first and first[q.id].text == q.text]
    rows = []
    for question in same[:QUESTIONS]:
        for data, reading, group in (
            (espeak_data, first[question.id], "espeak-ng"),
            (other_data, question, other.name),
        ):
            row = Measured(
                id=f"{group}-{question.id}",
                audio=data.path(reading),
                text=question.text,
                speaker=reading.speaker,
                group=group,
            )
            rows.append(row)
    return rows


def list_digits(folder: Path) -> dict[str, list[Measured]]:
    """List the digits of FSDD (7_jackson_3.wav): recordings 5 to 9 are dev, 0 to 4 test."""
    lists: dict[str, list[Measured]] = {"dev-fsdd": [], "test-fsdd": []}
    for path in sorted(folder.rglob("*.wav")):
        digit, speaker, number = path.stem.split("_")
        row = Measured(path.stem, path, digit, speaker, group="people: digits")
        if int(number) < 5:
            lists["test-fsdd"].append(row)
        elif int(number) < 10:
            lists["dev-fsdd"].append(row)
    return lists


def list_precise(folder: Path) -> list[Measured]:
    """List two words of Precise-Community-Data, which does not say who speaks."""
    rows = []
    for word in ("computer", "heychatterbox"):
        for path in sorted((folder / word).rglob("*.wav")):
            group = "people, who is not known: two words"
            rows.append(Measured(path.stem, path, word, speaker=path.stem, group=group))
    return rows


def make_parser() -> ArgumentParser:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("speech").add_argument
    add("out", type=Path)
    corpora = "corpora, whose training passages are listed, and lists"
    add("corpora", type=Path, nargs="+", help=corpora)
    add("--passages", type=int, default=260, help="most passages of a corpus, drawn at random")
    dtw = "encoder whose features are matched; default: times of words alone"
    add("--dtw", metavar="ENCODER", help=dtw)
    add("--layer", type=int, help="layer of that encoder")
    add = commands.add_parser("repeat").add_argument
    add("out", type=Path)
    add("speech", type=Path, help="list that `speech` made")
    copies = "folder of a corpus, and how often it occurs"
    add("copies", type=parse_copies, nargs="+", metavar="NAME=N", help=copies)
    add = commands.add_parser("measure").add_argument
    add("out", type=Path)
    add("corpus", type=Path, help="MiniSQA by espeak-ng")
    others = "MiniSQA of the same seed by other synthesisers"
    add("--others", type=Path, nargs="+", default=[], help=others)
    add("--fsdd", type=Path)
    add("--precise", type=Path)
    return parser


COMMANDS = {"speech": list_speech, "repeat": repeat_recordings, "measure": list_measured}

if __name__ == "__main__":
    run_program(lambda options: COMMANDS[options.command](options), make_parser())

"""Lists of recordings for recipes/units: what is trained on, and what is measured (audio, text,
speaker, group).

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
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from mix import copies_of
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.data.records import load_corpus, read_lines
from speechssl.units.features import Features, load_features

CORPORA = "corpora, whose training passages are listed, and lists"
MATCHED = "encoder whose features are matched; default: times of words alone"
COPIES = "folder of a corpus, and how often it occurs"
OTHERS = "MiniSQA of the same seed by other synthesisers"
QUESTIONS = "of a split of MiniSQA, the first of a passage each"
parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
commands = parser.add_subparsers(dest="command", required=True)
add = commands.add_parser("speech").add_argument
add("out", type=Path)
add("corpora", type=Path, nargs="+", help=CORPORA)
add("--passages", type=int, default=260, help="most passages of a corpus, drawn at random")
add("--dtw", metavar="ENCODER", help=MATCHED)
add("--layer", type=int, help="layer of that encoder")
add = commands.add_parser("repeat").add_argument
add("out", type=Path)
add("speech", type=Path, help="list that `speech` made")
add("copies", type=copies_of, nargs="+", metavar="NAME=N", help=COPIES)
add = commands.add_parser("measure").add_argument
add("out", type=Path)
add("corpus", type=Path, help="MiniSQA by espeak-ng")
add("--others", type=Path, nargs="+", default=[], help=OTHERS)
add("--fsdd", type=Path)
add("--precise", type=Path)
add("--questions", type=int, default=70, help=QUESTIONS)
options = parser.parse_args()

WORDS = 3  # that are matched at a time


def of_frames(path: Path, features: Features) -> np.ndarray:
    """Return (T, D): every dimension with mean 0 and variance 1 in the recording, every frame with
    length 1."""
    x = torch.cat(list(features.stream(read_audio(path)))).numpy()
    x = (x - x.mean(0)) / (x.std(0) + 1e-5)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def matched(anchors: np.ndarray, ours: np.ndarray, theirs: np.ndarray, rate: float) -> np.ndarray:
    """Map anchors (A, 2), seconds in both readings at begin and end of every word -> those of every
    frame of ours, by dynamic time warping between the borders of every third word. ours: (T, D),
    theirs: (T', D), frames of the two readings; rate: Hz."""
    from librosa.sequence import dtw

    whole = np.vstack([anchors, [len(ours) / rate, len(theirs) / rate]])
    frames = np.minimum(
        np.maximum.accumulate(np.round(whole * rate).astype(int)), [len(ours), len(theirs)]
    )
    cuts = frames[[0, *range(1, len(frames) - 1, 2 * WORDS), len(frames) - 1]]
    found = np.interp(np.arange(len(ours)), *frames.T)
    for (begin, start), (end, stop) in pairwise(cuts):
        if end > begin and stop > start:
            path = dtw(C=1 - ours[begin:end] @ theirs[start:stop].T)[1]
            total, count = np.zeros(end - begin), np.zeros(end - begin)
            np.add.at(total, path[:, 0], path[:, 1])
            np.add.at(count, path[:, 0], 1)
            found[begin:end] = start + total / count
    return np.stack([np.arange(len(ours)) + 0.5, np.maximum.accumulate(found) + 0.5], axis=1) / rate


def write(out: Path, paths: list, lines: list[dict]) -> None:
    """Write a list of recordings, and of some the readings that they are parallel to."""
    out.write_text("".join(f"{path}\n" for path in paths))
    reference = "".join(f"{json.dumps(line)}\n" for line in lines)
    out.with_suffix(".reference.jsonl").write_text(reference)
    print(f"{out}: {len(paths)} recordings, {len(lines)} of them with a reference reading")


if options.command == "speech":
    paths, lines = [], []
    features = load_features(options.dtw, options.layer) if options.dtw else None
    ours = load_corpus(options.corpora[0], "train").passages
    path = options.corpora[0] / "train" / "reference.jsonl"
    known = {line["id"]: line for _, line in read_lines(path)} if path.is_file() else {}
    for source in options.corpora:
        if source.is_dir():
            data = load_corpus(source, "train")
            most = min(options.passages, len(data.passages))
            drawn = [data.passages[p] for p in random.Random(0).sample(sorted(data.passages), most)]
            for passage in tqdm(drawn, f"times of {source.name}", disable=features is None):
                paths.append(data.path(passage).resolve())
                same = ours.get(passage.id)
                if passage.id not in known or same is None or same.text != passage.text:
                    continue
                # the neutral voice's time of every word of this reading, by way of the reading that
                # it was made for
                neutral = np.array(known[passage.id]["anchors"])
                audio = (options.corpora[0] / known[passage.id]["audio"]).resolve()
                anchors = neutral
                if source != options.corpora[0]:
                    if len(passage.words) != len(same.words):
                        continue
                    # words begin and end together: pauses, which differ most between synthesisers,
                    # are not stretched into words
                    pairs = [(0.0, 0.0)]
                    for theirs, own in zip(passage.words, same.words, strict=True):
                        pairs += [(theirs.start, own.start), (theirs.end, own.end)]
                    times = np.maximum.accumulate(np.array(pairs), axis=0)
                    anchors = np.stack([times[:, 0], np.interp(times[:, 1], *neutral.T)], axis=1)
                    if features:
                        both = (of_frames(path, features) for path in (paths[-1], audio))
                        anchors = matched(anchors, *both, features.grid.frame_rate)
                line = {"id": str(paths[-1].with_suffix("")), "audio": str(audio)}
                lines.append(line | {"anchors": anchors.round(5).tolist()})
        elif source.is_file():
            paths += source.read_text().split("\n")[:-1]
    write(options.out, [Path(path).resolve() for path in paths], lines)
    raise SystemExit

if options.command == "repeat":
    paths = options.speech.read_text().split("\n")[:-1]
    reference = read_lines(options.speech.with_suffix(".reference.jsonl"))
    readings = {line["id"]: line for _, line in reference}
    for name, copies in options.copies:
        for path in [Path(p) for p in paths if f"/{name}/" in p]:
            for number in range(2, copies + 1):  # ids are paths, and each occurs once
                link = options.out.with_suffix("").absolute() / f"{name}-{number}" / path.name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.unlink(missing_ok=True)
                link.symlink_to(path)
                paths.append(str(link))
                if reading := readings.get(str(path.with_suffix(""))):
                    new = str(link.with_suffix(""))
                    readings[new] = reading | {"id": new}
    write(options.out, paths, list(readings.values()))
    raise SystemExit

lists: dict[str, list[tuple[str, Path, str, str, str]]] = {}
for other in options.others:
    for split in (s for s in ("dev", "test") if (other / s / "questions.jsonl").is_file()):
        ours, theirs = (load_corpus(c, split) for c in (options.corpus, other))
        if not theirs.questions:
            continue
        known = {q.id: q for q in ours.questions if q.id.endswith("-0")}
        asked = [q for q in theirs.questions if q.id in known and known[q.id].text == q.text]
        rows = lists.setdefault(f"{split}-{other.name}", [])
        for q in asked[: options.questions]:
            for data, of, group in ((ours, known[q.id], "espeak-ng"), (theirs, q, other.name)):
                rows.append((f"{group}-{q.id}", data.path(of), q.text, of.speaker, group))
for split, numbers in (("dev", range(5, 10)), ("test", range(5))):
    for path in sorted(options.fsdd.rglob("*.wav")) if options.fsdd else []:
        digit, speaker, number = path.stem.split("_")
        if int(number) in numbers:
            found = (path.stem, path, digit, speaker, "people: digits")
            lists.setdefault(f"{split}-fsdd", []).append(found)
for word in ("computer", "heychatterbox") if options.precise else ():  # who speaks is not known
    for path in sorted((options.precise / word).rglob("*.wav")):
        found = (path.stem, path, word, path.stem, "people, who is not known: two words")
        lists.setdefault("test-precise", []).append(found)
options.out.mkdir(parents=True, exist_ok=True)
for name, rows in lists.items():
    with (options.out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "audio", "text", "speaker", "group"))
        writer.writerows((name, path.resolve(), *rest) for name, path, *rest in rows)
    print(f"{options.out / name}.csv: {len(rows)} recordings")

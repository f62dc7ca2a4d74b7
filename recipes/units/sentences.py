"""Sentences by people (speechocean762, its train half): a list to train on, and a list to measure
on, in which synthesisers say the sentences of people that do not train.

    python recipes/units/sentences.py FOLDER OUT --synthesisers espeak-ng piper

FOLDER has utterances.tsv (id, speaker, age, gender, text) and audio/ID.ogg. Of its speakers, in
order of their names, every eighth is held out. OUT.txt lists the recordings of all others,
OUT-dev.csv (audio, text, speaker, group) the first sentences of those who are held out, each beside
its readings by one voice of every synthesiser, which are in OUT-dev/.
"""

import argparse
import csv
from pathlib import Path

from tqdm import tqdm

from speechssl.audio import write_flac
from speechssl.synth.minisqa import speakers
from speechssl.synth.speak import read_aloud

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("folder", type=Path)
parser.add_argument("out", type=Path, help="name of the lists, without .txt and -dev.csv")
parser.add_argument("--synthesisers", nargs="*", default=["espeak-ng"])
parser.add_argument(
    "--sentences", type=int, default=8, help="sentences of every speaker that are measured"
)
options = parser.parse_args()

with (options.folder / "utterances.tsv").open(newline="") as table:
    rows = list(csv.DictReader(table, delimiter="\t"))
held_out = sorted({row["speaker"] for row in rows})[::8]
audio = (options.folder / "audio").resolve()
options.out.parent.mkdir(parents=True, exist_ok=True)
train = [f"{audio / row['id']}.ogg\n" for row in rows if row["speaker"] not in held_out]
options.out.with_suffix(".txt").write_text("".join(train))

dev = []
for speaker in held_out:
    dev += [row for row in rows if row["speaker"] == speaker][: options.sentences]
readings = options.out.parent / f"{options.out.name}-dev"
readings.mkdir(exist_ok=True)
lines = [(f"{audio / row['id']}.ogg", row["text"], row["speaker"], "people") for row in dev]
for synthesiser in options.synthesisers:
    voices = speakers("en", "dev", synthesiser)
    for number, row in enumerate(tqdm(dev, desc=synthesiser)):
        voice = voices[number % len(voices)]
        path = readings / f"{row['id']}-{synthesiser}.flac"
        if not path.is_file():
            write_flac(path, read_aloud(row["text"].capitalize(), voice, "en").samples)
        lines.append((str(path.resolve()), row["text"], str(voice.name), synthesiser))
with options.out.with_name(f"{options.out.name}-dev.csv").open("w", newline="") as table:
    csv.writer(table).writerows([("audio", "text", "speaker", "group"), *lines])

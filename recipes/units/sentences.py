"""Sentences by people (speechocean762, its train half): a list to train on, and a list to measure
on, in which synthesisers say the sentences of people that do not train.

    python recipes/units/sentences.py FOLDER OUT --synthesisers espeak-ng piper

FOLDER has utterances.tsv (id, speaker, age, gender, text) and audio/ID.ogg. Of its speakers, in
order of their names, every eighth is held out. OUT/people.txt lists the recordings of all others,
OUT/dev-people.txt the first sentences of those who are held out, and OUT/dev-people.csv (audio,
text, speaker, group) the same beside their readings by one voice of every synthesiser, which are in
OUT/readings.
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
parser.add_argument("out", type=Path, help="folder of the lists")
parser.add_argument("--synthesisers", nargs="*", default=["espeak-ng"])
parser.add_argument(
    "--sentences", type=int, default=8, help="sentences of every speaker that are measured"
)
options = parser.parse_args()

with (options.folder / "utterances.tsv").open(newline="") as table:
    rows = list(csv.DictReader(table, delimiter="\t"))
held_out = sorted({row["speaker"] for row in rows})[::8]
audio = (options.folder / "audio").resolve()
(options.out / "readings").mkdir(parents=True, exist_ok=True)


def path_of(row: dict[str, str]) -> str:
    return f"{audio / row['id']}.ogg"


def write_list(name: str, rows: list[dict[str, str]]) -> None:
    (options.out / name).write_text("".join(f"{path_of(row)}\n" for row in rows))


write_list("people.txt", [row for row in rows if row["speaker"] not in held_out])
dev = []
for speaker in held_out:
    dev += [row for row in rows if row["speaker"] == speaker][: options.sentences]
write_list("dev-people.txt", dev)
lines = [(path_of(row), row["text"], row["speaker"], "people") for row in dev]
for synthesiser in options.synthesisers:
    voices = speakers("en", "dev", synthesiser)
    for number, row in enumerate(tqdm(dev, desc=synthesiser)):
        voice = voices[number % len(voices)]
        path = (options.out / "readings" / f"{row['id']}-{synthesiser}.flac").resolve()
        if not path.is_file():
            write_flac(path, read_aloud(row["text"].capitalize(), voice, "en").samples)
        lines.append((str(path), row["text"], str(voice.name), synthesiser))
with (options.out / "dev-people.csv").open("w", newline="") as table:
    csv.writer(table).writerows([("audio", "text", "speaker", "group"), *lines])

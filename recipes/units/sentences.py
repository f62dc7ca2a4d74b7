"""Write lists of sentences by people (speechocean762, its train half): one to train on, and one to
measure on, in which synthesisers say the sentences of people that do not train.

    python recipes/units/sentences.py FOLDER OUT --synthesisers espeak-ng piper

FOLDER has utterances.tsv (id, speaker, age, gender, text) and audio/ID.ogg. Of its speakers, in
order of their names, every eighth is held out. OUT/people.txt lists the recordings of all others,
OUT/dev-people.txt the first sentences of those who are held out, and OUT/dev-people.csv (audio,
text, speaker, group) the same beside their readings by one voice of every synthesiser, which are in
OUT/readings.
"""

import csv
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

from tqdm import tqdm

from speechssl.audio import write_flac
from speechssl.cli import run_program
from speechssl.synth.minisqa import list_split_voices
from speechssl.synth.speak import read_aloud

MEASURED = 8  # sentences of every speaker who is held out


def main(options: Namespace) -> None:
    with (options.folder / "utterances.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    audio = (options.folder / "audio").resolve()
    held_out = sorted({row["speaker"] for row in rows})[::8]
    dev = []
    for speaker in held_out:
        dev += [row for row in rows if row["speaker"] == speaker][:MEASURED]
    train = [row for row in rows if row["speaker"] not in held_out]
    readings = options.out / "readings"
    readings.mkdir(parents=True, exist_ok=True)
    for name, utterances in (("people.txt", train), ("dev-people.txt", dev)):
        paths = [f"{audio / row['id']}.ogg\n" for row in utterances]
        (options.out / name).write_text("".join(paths))
    lines = [(f"{audio / row['id']}.ogg", row["text"], row["speaker"], "people") for row in dev]
    for synthesiser in options.synthesisers:
        voices = list_split_voices("en", "dev", synthesiser)
        for number, row in enumerate(tqdm(dev, desc=synthesiser)):
            voice = voices[number % len(voices)]
            path = (readings / f"{row['id']}-{synthesiser}.flac").resolve()
            if not path.is_file():
                write_flac(path, read_aloud(row["text"].capitalize(), voice, "en").samples)
            lines.append((str(path), row["text"], str(voice.name), synthesiser))
    with (options.out / "dev-people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("audio", "text", "speaker", "group"), *lines])


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, help="folder of the lists")
    parser.add_argument("--synthesisers", nargs="*", default=["espeak-ng"])
    run_program(main, parser)

"""Pack short recordings, such as single words, into files of about 20 s: `pretrain` cuts crops of
seconds out of its recordings.

    python recipes/units/pack.py OUT.txt FOLDER ... [--skip REGEX] [--copies 2]

Recordings are shuffled, brought to one level, and joined with pauses of 0.1 to 0.4 s. OUT.txt lists
the files, which are in OUT/.
"""

import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import numpy as np
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.data.recordings import list_recordings
from speechssl.errors import InputError, report_set_aside
from speechssl.signal import speech_level

parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
parser.add_argument(
    "out", type=Path, help=("list to write (.txt); the files are in the folder of the same name")
)
parser.add_argument("folders", type=Path, nargs="+")
parser.add_argument("--skip", default=r"$^", help="regular expression of file names to leave out")
parser.add_argument("--seconds", type=float, default=20.0, help="length of a file")
parser.add_argument(
    "--copies",
    type=int,
    default=1,
    help=("times that every recording occurs, beside others each time"),
)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

try:
    found = [recording.path for folder in options.folders for recording in list_recordings(folder)]
except InputError as error:
    parser.error(str(error))
sources = sorted(path for path in found if not re.search(options.skip, path.name))
rng, folder = np.random.default_rng(options.seed), options.out.with_suffix("")
folder.mkdir(parents=True, exist_ok=True)
paths, pieces, failed = [], [], {}


def write():
    paths.append(folder / f"{len(paths):05d}.flac")
    write_flac(paths[-1], np.concatenate(pieces))
    pieces.clear()


order = np.concatenate([rng.permutation(len(sources)) for _ in range(options.copies)])
for number in tqdm(order, desc=f"packing {options.out}", unit="recording"):
    try:
        samples = read_audio(sources[number])
    except InputError as error:
        failed[sources[number].name] = str(error)
        continue
    level = speech_level(samples)
    if not np.isfinite(level):
        continue
    samples = samples * np.float32(10 ** ((-26 - level) / 20))  # dB of the full scale
    pause = np.zeros(int(rng.uniform(0.1, 0.4) * SAMPLE_RATE), np.float32)
    pieces += [np.clip(samples, -1, 1), pause]
    if sum(map(len, pieces)) > options.seconds * SAMPLE_RATE:
        write()
if pieces:
    write()
report_set_aside(failed, "packing")
options.out.write_text("".join(f"{p.resolve()}\n" for p in paths))
print(f"{options.out}: {len(order)} recordings in {len(paths)} files")

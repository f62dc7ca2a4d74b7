"""Pack short recordings, such as single words, into files of about 20 s: `pretrain` cuts crops of
seconds out of its recordings.

    python recipes/units/pack.py OUT.txt FOLDER ... [--skip REGEX] [--copies 2]

Recordings are shuffled, brought to one level, and joined with pauses of 0.1 to 0.4 s. OUT.txt lists
the files, which are in OUT/.
"""

import re
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.cli import run_program
from speechssl.data.recordings import list_recordings
from speechssl.errors import InputError, report_set_aside
from speechssl.signal import measure_level

LEVEL = -26  # dB of the full scale, of the speech in every recording
PAUSES = (0.1, 0.4)  # seconds
LENGTH = 20  # seconds of a file


def pack(options: Namespace) -> None:
    """Pack the recordings, and write the list of the files. Those that cannot be read are set aside
    and reported."""
    paths = [recording.path for f in options.folders for recording in list_recordings(f)]
    sources = sorted(path for path in paths if not re.search(options.skip, path.name))
    rng = np.random.default_rng(0)
    folder = options.out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    order = np.concatenate([rng.permutation(len(sources)) for _ in range(options.copies)])
    files: list[Path] = []
    pieces: list[np.ndarray] = []  # recordings and pauses of the file that is being filled
    packed = 0
    failed = {}
    for number in tqdm(order, desc=f"packing {options.out}", unit="recording"):
        try:
            samples = read_audio(sources[number])
        except InputError as error:
            failed[sources[number].name] = str(error)
            continue
        level = measure_level(samples)
        if not np.isfinite(level):  # nothing but silence
            continue
        samples = samples * np.float32(10 ** ((LEVEL - level) / 20))
        pause = np.zeros(int(rng.uniform(*PAUSES) * SAMPLE_RATE), np.float32)
        pieces += [np.clip(samples, -1, 1), pause]
        packed += 1
        if sum(map(len, pieces)) > LENGTH * SAMPLE_RATE:
            files.append(write_file(folder, len(files), pieces))
            pieces = []
    if pieces:
        files.append(write_file(folder, len(files), pieces))
    report_set_aside(failed, "packing")
    options.out.write_text("".join(f"{path.resolve()}\n" for path in files))
    print(f"{options.out}: {packed} recordings in {len(files)} files")


def write_file(folder: Path, number: int, pieces: Sequence[np.ndarray]) -> Path:
    """Write the pieces end to end, and return the path."""
    path = folder / f"{number:05d}.flac"
    write_flac(path, np.concatenate(pieces))
    return path


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("out", type=Path, help="list to write (.txt); the files are in the folder of the same name")
    add("folders", type=Path, nargs="+")
    add(
        "--skip", default=r"$^", help="regular expression of file names to leave out; default: none"
    )
    copies = "times that every recording occurs, beside others each time"
    add("--copies", type=int, default=1, help=copies)
    run_program(pack, parser)

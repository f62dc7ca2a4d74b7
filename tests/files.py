"""What tests do with the files that a command reads and leaves: change them, compare them."""

import io
import json
from contextlib import contextmanager

import numpy as np
import pyarrow
import pytest
import soundfile
from pyarrow import parquet

from speechssl.audio import write_flac
from speechssl.errors import InputError


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    path.write_text("".join(lines), encoding="utf-8")


def write_corpus(root, split, **kinds):
    """A corpus of passages and questions: those that last some seconds get a recording of noise.
    Returns its folder."""
    rng = np.random.default_rng(0)
    for kind, records in kinds.items():
        lines = []
        for record in records:
            line = {"audio": "", "seconds": 0.0, "text": "", "speaker": "s", "language": "en"}
            line |= record
            if line["seconds"]:
                line["audio"] = f"{split}/audio/{line['id']}.flac"
                samples = rng.uniform(-0.5, 0.5, round(line["seconds"] * 16_000))
                write_flac(root / line["audio"], samples)
            lines.append(line)
        write_lines(root / split / f"{kind}.jsonl", lines)
    (root / "card.json").write_text("{}")
    return root


def write_parquet(path, rows):
    """In groups of two rows each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)


def wav(samples, rate=16_000):
    """The bytes of a recording, as tables hold them."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format="WAV")
    return buffer.getvalue()


def change_lines(path, change):
    """change: fields that every record gets, or a function record -> record."""
    records = read_lines(path)
    write_lines(path, [change(r) if callable(change) else r | change for r in records])


def change_json(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def same_files(one, other, *names):
    """Whether the files of two folders have the same bytes. names: which, none for all of the
    first."""
    names = names or list(contents(one))
    return bool(names) and all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in names
    )


def contents(folder):
    """Path -> bytes of every file below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def remarks(facts):
    """What a data report remarks on a split -> how often. facts: those of the split."""
    return {found["what"]: found["count"] for found in facts["found"]}


def remarked(facts, done):
    """How often it remarks one thing. done: as the package names it, what was found and what was
    done about it."""
    return sum(found["count"] for found in facts["found"] if found["what"] == done[0])


@contextmanager
def untouched(folder):
    """Nothing below the folder is made, written or removed."""

    def stamps():
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}

    before = stamps()
    yield
    assert before and stamps() == before


def refused(match, function, *arguments, **options):
    """The function raises InputError of one line with this in it. Returns the line."""
    with pytest.raises(InputError, match=match) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)

"""Helpers that write, change and compare the files which a command reads and writes."""

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
    """Read the records of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def write_lines(path, records):
    """Write records as a JSONL file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    path.write_text("".join(lines), encoding="utf-8")


def write_corpus(root, split, **kinds):
    """Write a split of a corpus, and return the corpus folder. kinds: passages=records,
    questions=records; records with `seconds` get a recording of noise."""
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
    """Write rows as a Parquet file, in row groups of two rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)


def wav(samples, rate=16_000):
    """Return samples as the bytes of a WAV file, as tables hold them."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format="WAV")
    return buffer.getvalue()


def change_lines(path, change):
    """Change every record of a JSONL file. change: fields that every record gets, or a function
    record -> record."""
    records = read_lines(path)
    write_lines(path, [change(r) if callable(change) else r | change for r in records])


def change_json(path, **fields):
    """Set fields of a JSON object in a file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def same_files(one, other, *names):
    """Return whether files of two folders have the same bytes. names: the files to compare; without
    names, all files of the first folder."""
    names = names or list(contents(one))
    return bool(names) and all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in names
    )


def contents(folder):
    """Read all files below a folder: relative path -> bytes."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def collect_remarks(facts):
    """Collect the remarks on a split: what was found -> how often. facts: of the split, in a data
    report."""
    return {found["what"]: found["count"] for found in facts["found"]}


def count_remarks(facts, remark):
    """Count how often a remark was made on a split. facts: of the split, in a data report; remark:
    (what was found, what was done about it), as the package has it."""
    return sum(found["count"] for found in facts["found"] if found["what"] == remark[0])


@contextmanager
def untouched(folder):
    """Assert that the block makes, writes and removes nothing below the folder."""

    def stamps():
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}

    before = stamps()
    yield
    assert before and stamps() == before


def refused(match, function, *arguments, **options):
    """Assert that the function raises an InputError of one line that matches the pattern `match`.
    Returns the line."""
    with pytest.raises(InputError, match=match) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)

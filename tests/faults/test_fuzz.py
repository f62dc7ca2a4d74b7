"""Files that are not as they should be: a verb uses them or says in one sentence what is wrong, in
bounded memory.

Half of the cases change values that a parser has read, and half bytes of the file. Each goes
through the command's `main`.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import soundfile
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from speechssl.audio import read_audio

from .conftest import CASES, check_refusal, command, little_memory

pytestmark = pytest.mark.slow

# ---- what is done to a file

WORDS = (
    "",
    "\0",
    "../../x",
    "/",
    "nan",
    "語\u2028",
    "\ud800",
    "x" * 5_000,
    *("${x} ~ - . p0 <script> 1e999").split(),
    "a\nb",
)
NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**63,
    2**64,
    10**12,
    10**400,
    0.0,
    -0.5,
    1e-320,
    1e38,
    1e308,
    float("nan"),
    float("inf"),
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.sampled_from(NUMBERS)
    | st.sampled_from(WORDS)
    | st.text(max_size=6)
)
NESTED = lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(WORDS), x, max_size=3)  # noqa: E731
VALUES = st.recursive(LEAVES, NESTED, max_leaves=5)
DEEP = "[" * 100_000


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value within a value, itself first."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(place for key, part in inner for place in places(part, (*at, key)))]


def changed(value: Any, place: Sequence[Any], new: Any) -> Any:
    """A copy with another value at a place."""
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = changed(copy[place[0]], place[1:], new)
    return copy


@st.composite
def other_values(draw: Callable[..., Any], value: Any) -> Any:
    """A value with one or two of its parts changed, removed or joined by another."""
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(places(value)))
        part = value
        for key in place:
            part = part[key]
        how = draw(st.sampled_from(("change", "remove", "add", "twice")))
        if how == "add" and isinstance(part, dict):
            new = part | {draw(st.sampled_from(WORDS)): draw(VALUES)}
        elif how == "remove" and isinstance(part, (dict, list)) and part:
            gone = draw(st.sampled_from(list(part) if isinstance(part, dict) else range(len(part))))
            new = (
                {k: v for k, v in part.items() if k != gone}
                if isinstance(part, dict)
                else part[:gone] + part[gone + 1 :]
            )
        elif how == "twice" and isinstance(part, list):
            new = part + part
        else:
            new = draw(VALUES)
        value = changed(value, place, new)
    return value


@st.composite
def other_bytes(draw: Callable[..., Any], content: bytes, head: int | None = None) -> bytes:
    """Bytes of which some were changed, removed, added or exchanged. head: those to choose from;
    None: all."""
    made = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, min(len(made), head or len(made))))
        how = draw(st.sampled_from(("flip", "cut", "remove", "insert", "number", "repeat")))
        if how == "flip" and at < len(made):
            made[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del made[at:]
        elif how == "remove":
            del made[at : at + draw(st.integers(1, 8))]
        elif how == "insert":
            made[at:at] = draw(
                st.binary(max_size=6)
                | st.sampled_from([w.encode("utf-8", "replace") for w in WORDS])
            )
        elif how == "number":
            number = draw(
                st.sampled_from((0, 1, 2**31 - 1, 2**32 - 1, 10**12, 2**63 - 1, 2**64 - 1))
            )
            made[at : at + 8] = struct.pack("<Q", number)[: draw(st.sampled_from((4, 8)))]
        else:
            made += made[at:][:4_000]
    return bytes(made)


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


# ---- the files, and who reads them


@dataclass(frozen=True)
class Kind:
    """A kind of file. whole: what it holds; broken: what it may not hold; read: a path -> the verb
    that reads what lies there."""

    file: str
    whole: bytes
    broken: Callable[[bytes], st.SearchStrategy[bytes]]
    read: Callable[[Path], Sequence[object]]
    share: float = 1.0  # of the cases: verbs that take longer get fewer


def json_lines(content: bytes) -> st.SearchStrategy[bytes]:
    values = other_values([json.loads(line) for line in content.splitlines()])
    listed = values.map(
        lambda v: b"".join(dumped(x) + b"\n" for x in v) if isinstance(v, list) else dumped(v)
    )
    return listed | other_bytes(content) | st.just(content + DEEP.encode())


def json_values(content: bytes) -> st.SearchStrategy[bytes]:
    return (
        other_values(json.loads(content)).map(dumped)
        | other_bytes(content)
        | st.just(DEEP.encode())
    )


def tensors(content: bytes) -> st.SearchStrategy[bytes]:
    """Of safetensors: 8 bytes that say how long the header is, the header as JSON, numbers."""
    size = int.from_bytes(content[:8], "little")
    header, numbers = json.loads(content[8 : 8 + size]), content[8 + size :]

    def whole(value: Any) -> bytes:
        head = dumped(value)
        return len(head).to_bytes(8, "little") + head + numbers

    return other_values(header).map(whole) | other_bytes(content, 8 + size)


def yaml_values(content: bytes) -> st.SearchStrategy[bytes]:
    def written(value: Any) -> bytes:
        return yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass")

    letters = "abcdefghijklm"  # each of which holds the one before it four times
    laughs = "a: &a [x, x]\n" + "".join(
        (f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n") for a, b in pairwise(letters)
    )
    fixed = st.sampled_from([laughs.encode(), DEEP.encode()])
    return other_values(yaml.safe_load(content)).map(written) | other_bytes(content) | fixed


def sound(content: bytes) -> st.SearchStrategy[bytes]:
    return other_bytes(content, 100) | other_bytes(content)


TEXTGRID = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 0.5
tiers? <exists>
size = 1
item []:
    item [1]:
        class = "IntervalTier"
        name = "phones"
        xmin = 0
        xmax = 0.5
        intervals: size = 2
        intervals [1]:
            xmin = 0
            xmax = 0.2
            text = "AA"
        intervals [2]:
            xmin = 0.2
            xmax = 0.5
            text = "B"
"""
CELLS = """id,audio,text,speaker,words
p0,p0.flac,"a red boat",s0,"[[""a"", 0.0, 0.1]]"
p1,p1.flac,two,s1,
"""
ANSWERS = {"q0": "boat", "q1": [0.3, 0.5], "q2": {"text": "red boat", "start": 0.1, "end": 0.5}}
OPTIONS = {
    "units": {"shard-size": 2, "workers": 1, "engine": "local", "device": "cpu", "passages": None}
}
FORMATS = ("wav", "flac", "aiff", "au", "ogg", "mp3", "rf64")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzzed")


@pytest.fixture(scope="module")
def kinds(workshop: Path, chain: Path, work: Path) -> dict[str, Kind]:
    audio, corpus, book, out = (
        workshop / "audio",
        workshop / "corpus",
        workshop / "mfcc.safetensors",
        work / "out",
    )
    models, answers = chain / "models", work / "answers.json"
    answers.write_bytes(dumped(ANSWERS))

    def units(
        source: Path, *more: object, encoder: object = "mfcc", codebook: Path = book
    ) -> Sequence[object]:
        return "units", "extract", source, encoder, codebook, out, "--workers", 1, *more

    def scored(folder: Path) -> Sequence[object]:
        return "evaluate", "predictions", folder, out, answers, "--name", "mine"

    def coded(folder: Path) -> Sequence[object]:
        return units(audio, encoder=models / "encoder", codebook=folder / "units.safetensors")

    def encoded(folder: Path) -> Sequence[object]:
        return units(audio, encoder=folder, codebook=models / "units.safetensors")

    def of(
        folder: Path,
        name: str,
        broken: Any,
        read: Callable[[Path], Sequence[object]],
        share: float = 1.0,
    ) -> Kind:
        """The kind of a file in a folder. read: a copy of the folder with the broken file -> a
        verb."""

        def read_copy(path: Path) -> Sequence[object]:
            new = work / "copy"
            shutil.rmtree(new, ignore_errors=True)
            shutil.copytree(folder, new, copy_function=lambda a, b: Path(b).symlink_to(a))
            (new / name).unlink()
            shutil.copyfile(path, new / name)
            return read(new)

        return Kind(Path(name).name, (folder / name).read_bytes(), broken, read_copy, share)

    def measured(source: Path, *more: object) -> Sequence[object]:
        return "units", "evaluate", source, "mfcc", book, "--same-text", 0, *more, "--conditions"

    (work / "table").mkdir()
    (work / "table/passages.csv").write_text(CELLS)
    for name in ("p0", "p1"):
        shutil.copyfile(audio / f"{name}.flac", work / f"table/{name}.flac")
    listed = "".join(
        json.dumps({"id": f"r{i}", "audio": str(audio / f"q{i}.flac"), "seconds": 0.3}) + "\n"
        for i in range(2)
    )
    spoken = "audio,text,speaker,group\n" + "".join(
        f"{audio}/q{i}.flac,w{i % 2},s{i},g\n" for i in range(3)
    )
    whole = read_audio(audio / "q0.flac")
    headers = {}
    for name in FORMATS:
        buffer = io.BytesIO()
        soundfile.write(buffer, whole, 16_000, format=name.upper())
        headers[name] = buffer.getvalue()

    return {
        "manifest .jsonl": Kind("m.jsonl", listed.encode(), json_lines, units),
        "manifest .csv": Kind(
            "m.csv",
            f"audio,id\n{audio}/q0.flac,a\n{audio}/q1.flac,b\n".encode(),
            other_bytes,
            units,
        ),
        "manifest .txt": Kind(
            "m.txt", f"{audio}/q0.flac\n{audio}/q1.flac\n".encode(), other_bytes, units
        ),
        "manifest .tsv": Kind(
            "m.tsv", f"{audio}\nq0.flac\t4800\nq1.flac\t4800\n".encode(), other_bytes, units
        ),
        "passages.jsonl": of(
            corpus,
            "test/passages.jsonl",
            json_lines,
            lambda folder: units(folder, "--split", "test"),
        ),
        "questions.jsonl": of(corpus, "test/questions.jsonl", json_lines, scored),
        "predictions": Kind(
            "a.json",
            dumped(ANSWERS),
            json_values,
            lambda path: ("evaluate", "predictions", corpus, out, path, "--name", "mine"),
        ),
        "safetensors of a codebook": of(models, "units.safetensors", tensors, coded),
        "config of an encoder": of(models / "encoder", "config.json", json_values, encoded, 0.5),
        "safetensors of an encoder": of(
            models / "encoder", "model.safetensors", tensors, encoded, 0.5
        ),
        "YAML": Kind(
            "c.yaml",
            yaml.safe_dump(OPTIONS).encode(),
            yaml_values,
            lambda path: units(audio, "--config", path, "--stage", "units"),
        ),
        "TextGrid": Kind(
            "p0.TextGrid",
            TEXTGRID.encode(),
            other_bytes,
            lambda path: measured(audio / "p0.flac", "--alignment", path),
        ),
        "CSV of passages": of(
            work / "table",
            "passages.csv",
            other_bytes,
            lambda folder: ("prepare", "table", folder, out),
        ),
        "CSV of words": Kind("s.csv", spoken.encode(), other_bytes, measured),
        **{
            f"audio .{name}": Kind(f"q0.{name.replace('rf64', 'wav')}", headers[name], sound, units)
            for name in FORMATS
        },
    }


NAMES = (
    "manifest .jsonl",
    "manifest .csv",
    "manifest .txt",
    "manifest .tsv",
    "passages.jsonl",
    "questions.jsonl",
    "predictions",
    "safetensors of a codebook",
    "config of an encoder",
    "safetensors of an encoder",
    "YAML",
    "TextGrid",
    "CSV of passages",
    "CSV of words",
    *(f"audio .{name}" for name in FORMATS),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_fuzzed_file_is_used_or_refused_in_one_sentence(
    name: str,
    kinds: dict[str, Kind],
    work: Path,
    tmp_path: Path,
    tell: Callable[[str, Sequence[str]], None],
) -> None:
    assert tuple(kinds) == NAMES
    kind, happened = kinds[name], list[str]()

    def answer(content: bytes) -> str:
        (tmp_path / kind.file).write_bytes(content)
        shutil.rmtree(work / "out", ignore_errors=True)
        arguments = kind.read(tmp_path / kind.file)
        with little_memory():
            said = command(*arguments)
        if said.code:
            check_refusal(said)
            return "refused in one sentence"
        assert said.sentence == "", said
        return "used"

    assert answer(kind.whole) == "used"

    @settings(
        max_examples=max(
            round(kind.share * (CASES / sum(k.share for k in kinds.values()) if CASES else 20)), 3
        ),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(kind.broken(kind.whole))
    def check(content: bytes) -> None:
        happened.append(answer(content))

    check()
    tell(f"fuzzed: {name}", happened)

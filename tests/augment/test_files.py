"""Manifests of noise: what they name, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from speechssl.augment.noise import noise_files
from speechssl.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.wav", "a.FLAC", "sub/c.ogg", "sub/notes.txt", ".hidden.wav"):
        (tmp_path / "n" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "n" / name).touch()
    return tmp_path / "n"


def test_a_folder_a_file_and_nothing(folder: Path) -> None:
    assert [p.name for p in noise_files(folder)] == ["a.FLAC", "b.wav", "c.ogg"]
    assert noise_files(folder / "b.wav") == [folder / "b.wav"]
    assert noise_files(folder / "missing") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.txt", "b.wav\n\nsub/c.ogg\n"),
        ("list.tsv", "b.wav\t100\nsub/c.ogg\t7\n"),
        ("list.tsv", "./\nb.wav\t100\nsub/c.ogg\t7\n"),
        ("list.jsonl", '{"audio": "b.wav"}\n{"audio": "sub/c.ogg", "seconds": 3}\n'),
    ],
)
def test_manifests(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    assert [p.resolve() for p in noise_files(folder / name)] == [folder / "b.wav", folder / "sub" / "c.ogg"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("list.txt", b"", "is empty"),
        ("list.txt", b"\xff\xfe", "UTF-8"),
        ("list.jsonl", b"{", ":1 is not JSON"),
        ("list.jsonl", b'{"audio": "b.wav"}\n{"path": "b.wav"}', ":2 has no `audio`"),
        ("list.jsonl", b"[3]", ":1 has no `audio`"),
    ],
)
def test_bad_manifests(folder: Path, name: str, content: bytes, message: str) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        noise_files(folder / name)

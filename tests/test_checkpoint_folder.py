"""Named checkpoints: local folders first, then the hub's cache and the hub, which is a small server here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from speechssl.errors import InputError
from speechssl.io import MODELS, checkpoint_folder

NAME, SHA = "someone/tiny-hubert", "0123456789abcdef0123456789abcdef01234567"
WHOLE = {"config.json": b"{}", "vocab.txt": b"a", "model.safetensors": b"weights", "pytorch_model.bin": b"the same again"}
WHOLE |= {"tf_model.h5": b"and again", "onnx/config.json": b"{}"}


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_a_folder_is_taken_before_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = folder(tmp_path / NAME), folder(tmp_path / "models" / NAME)
    monkeypatch.chdir(tmp_path)
    assert checkpoint_folder(here, "speech encoder") == here
    monkeypatch.setenv(MODELS, str(there.parents[1]))
    assert checkpoint_folder(NAME, "speech encoder") == Path(NAME)


@pytest.mark.parametrize("place", [NAME, "tiny-hubert"])
def test_models_are_found_with_and_without_their_owner(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODELS, str(tmp_path))
    there = folder(tmp_path / place)
    assert checkpoint_folder(NAME, "text encoder") == there


def test_the_folder_of_the_owner_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODELS, str(tmp_path))
    folder(tmp_path / "tiny-hubert")
    owned = folder(tmp_path / NAME)
    assert checkpoint_folder(NAME, "text encoder") == owned


@pytest.mark.parametrize("what", ["speech encoder", "text encoder", "recogniser"])
def test_offline_one_sentence_says_at_once_what_was_wanted_where(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MODELS, raising=False)
    began = time.monotonic()
    with pytest.raises(InputError) as caught:
        checkpoint_folder(NAME, what)
    assert time.monotonic() - began < 5
    said = str(caught.value)
    assert said.startswith(f"found no {what} at {NAME}: ") and "HF_HUB_OFFLINE is set" in said and "config.json" in said
    assert f"hf download {NAME} --local-dir MODELS/{NAME}" in said and f"point {MODELS} at MODELS" in said
    assert "\n" not in said and ". " not in said
    monkeypatch.setenv(MODELS, str(tmp_path))
    with pytest.raises(InputError, match=f"hf download {NAME} --local-dir {tmp_path}/{NAME}"):
        checkpoint_folder(NAME, what)


@pytest.mark.parametrize("name", ["/no/such/folder", "a/b/c", "../models", "a name", "", "owner/..", "-x/y"])
def test_what_cannot_be_on_the_hub_is_not_looked_for_there(name: str) -> None:
    with pytest.raises(InputError, match=r"found no text encoder at .*; give a folder with config.json.* or a hub id"):
        checkpoint_folder(name or "/no/" + name, "text encoder")


def test_a_variable_that_names_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODELS, str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=f"{MODELS} is .*nowhere, which is not a folder"):
        checkpoint_folder(NAME, "text encoder")


def test_encoders_of_speech_and_text_are_loaded_by_name(
    hubert_folder: Callable[[str], Path],
    text_encoder: Callable[[str], Any],
    tokenizer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from speechssl.encoders.load import load_encoder
    from speechssl.textlm.encoders import load_text_encoder

    shutil.copytree(hubert_folder("layer"), tmp_path / "facebook" / "hubert-large-ll60k")
    for part in (text_encoder("longformer"), tokenizer):
        part.save_pretrained(tmp_path / "allenai" / "longformer-base-4096")
    monkeypatch.setenv(MODELS, str(tmp_path))
    encoder = load_encoder("facebook/hubert-large-ll60k")
    assert (encoder.name, encoder.hash) == ("facebook/hubert-large-ll60k", load_encoder(hubert_folder("layer")).hash)
    model, read = load_text_encoder("allenai/longformer-base-4096")
    assert model.config.model_type == "longformer" and len(read) == len(tokenizer)


# ---- the hub


class _Hub(BaseHTTPRequestHandler):
    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        type(self).asked.append(path)
        if path == f"/api/models/{NAME}" or path.startswith(f"/api/models/{NAME}/revision/"):
            self._json({"id": NAME, "sha": SHA, "siblings": [{"rfilename": f} for f in self.files]})
        elif path.startswith(f"/api/models/{NAME}/tree/"):
            self._json([{"type": "file", "path": f, "size": len(b), "oid": _etag(b)} for f, b in self.files.items()])
        elif path.startswith(f"/{NAME}/resolve/") and (name := path.split("/", 5)[-1]) in self.files:
            self._send(200, self.files[name], ETag=f'"{_etag(self.files[name])}"')
        else:
            self._send(404, b"", **{"X-Error-Code": "RepoNotFound"})

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode())

    def _send(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content)), "X-Repo-Commit": SHA} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Ask, ThreadingHTTPServer]]:
    """A function (name, **environment) -> the process that looked for it, on a hub that has NAME alone."""
    _Hub.files, _Hub.asked = dict(WHOLE), []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = "import sys; from speechssl.io import checkpoint_folder; print(checkpoint_folder(sys.argv[1], 'text encoder'))"

    def ask(name: str, **more: str) -> subprocess.CompletedProcess[str]:
        address = f"http://127.0.0.1:{server.server_port}"
        kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k not in (MODELS, "HF_HUB_OFFLINE")}
        changes = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(Path(__file__).parents[1])}
        return subprocess.run([sys.executable, "-c", program, name], env=kept | changes | more, capture_output=True, text=True)

    yield ask, server
    server.shutdown()
    server.server_close()


def test_the_hub_gives_one_format_and_its_cache_serves_without_it(hub: tuple[Ask, ThreadingHTTPServer], tmp_path: Path) -> None:
    ask, server = hub
    first = ask(NAME)
    assert first.returncode == 0, first.stderr
    there = Path(first.stdout.strip())
    fetched = ("config.json", "vocab.txt", "model.safetensors")
    assert {p.name: p.read_bytes() for p in there.iterdir()} == {name: WHOLE[name] for name in fetched}
    assert Path(ask(NAME, HF_HUB_OFFLINE="1").stdout.strip()) == there
    server.shutdown()
    server.server_close()  # now it cannot be reached
    began = time.monotonic()
    assert Path(ask(NAME).stdout.strip()) == there
    other = ask("someone/else")
    assert time.monotonic() - began < 15
    assert "the hub cannot be reached" in other.stderr and "--local-dir MODELS/someone/else" in other.stderr
    assert "Retrying" not in other.stderr


def test_older_checkpoints_have_pytorch_weights(hub: tuple[Ask, ThreadingHTTPServer]) -> None:
    del _Hub.files["model.safetensors"]
    ask, _ = hub
    assert (Path(ask(NAME).stdout.strip()) / "pytorch_model.bin").is_file()


def test_a_name_that_the_hub_does_not_know_is_one_sentence(hub: tuple[Ask, ThreadingHTTPServer]) -> None:
    ask, _ = hub
    assert "the hub has none of this name" in ask("someone/else").stderr


def test_a_cache_without_weights_is_not_taken(hub: tuple[Ask, ThreadingHTTPServer]) -> None:
    ask, _ = hub
    there = Path(ask(NAME).stdout.strip())
    (there / "model.safetensors").unlink()
    assert "its cache" in ask(NAME, HF_HUB_OFFLINE="1").stderr

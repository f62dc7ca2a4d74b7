"""Checkpoints by name: local folders first, then the hub's cache and the hub, which is a small
server here; and weights as int8."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from speechssl.checkpoints import MODELS_VARIABLE, checkpoint_folder, find_checkpoint

from .files import refused

NAME, SHA = "someone/tiny-hubert", "0123456789abcdef0123456789abcdef01234567"
WHOLE = {
    "config.json": b"{}",
    "vocab.txt": b"a",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"the same again",
}
WHOLE |= {"tf_model.h5": b"and again", "onnx/config.json": b"{}"}


def folder(path):
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_folders_come_first_then_models_with_and_without_their_owner(tmp_path, monkeypatch):
    models = tmp_path / "models"
    monkeypatch.setenv(MODELS_VARIABLE, str(models))
    for place in ("tiny-hubert", NAME):
        there = folder(models / place)
        assert checkpoint_folder(NAME, "text encoder") == there
    # no name for the hub's client, which raises an error of its own
    odd = folder(models / "some--thing")
    assert find_checkpoint(odd.name) == odd
    here = folder(tmp_path / NAME)
    monkeypatch.chdir(tmp_path)
    assert checkpoint_folder(here, "speech encoder") == here
    assert checkpoint_folder(NAME, "speech encoder") == Path(NAME)


@pytest.mark.parametrize("name", ["/no/such/folder", "../models", "a name", "owner/.."])
def test_what_cannot_be_on_the_hub_is_not_looked_for_there(name):
    wanted = r"found no text encoder at .*; give a folder with config.json.* or a hub id"
    refused(wanted, checkpoint_folder, name, "text encoder")


# ---- the hub


class _Hub(BaseHTTPRequestHandler):
    files: ClassVar[dict] = {}

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path, models = self.path.split("?")[0], f"/api/models/{NAME}"
        file = path.split("/", 5)[-1] if path.startswith(f"/{NAME}/resolve/") else None
        if path == models or path.startswith(f"{models}/revision/"):
            self._json({"id": NAME, "sha": SHA, "siblings": [{"rfilename": f} for f in self.files]})
        elif path.startswith(f"{models}/tree/"):
            listed = [{"path": f, "size": len(b), "oid": _etag(b)} for f, b in self.files.items()]
            self._json([{"type": "file"} | entry for entry in listed])
        elif file in self.files:
            self._send(200, self.files[file], ETag=f'"{_etag(self.files[file])}"')
        else:
            self._send(404, b"", **{"X-Error-Code": "RepoNotFound"})

    def _json(self, value):
        self._send(200, json.dumps(value).encode())

    def _send(self, status, content, **headers):
        self.send_response(status)
        headers |= {"Content-Length": str(len(content)), "X-Repo-Commit": SHA}
        for header in headers.items():
            self.send_header(*header)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


def _etag(content):
    return hashlib.sha1(content).hexdigest()


PROGRAM = """
import sys
from speechssl.checkpoints import checkpoint_folder
print(checkpoint_folder(sys.argv[1], 'text encoder'))
"""


@pytest.fixture
def hub(tmp_path):
    """A function (name, **environment) -> the process that looked for it, on a hub that has NAME
    alone."""
    _Hub.files = dict(WHOLE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    kept = {k: v for k, v in kept.items() if k not in (MODELS_VARIABLE, "HF_HUB_OFFLINE")}
    kept |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
    kept |= {"HF_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(Path(__file__).parents[1])}

    def ask(name, **more):
        command = [sys.executable, "-c", PROGRAM, name]
        return subprocess.run(command, env=kept | more, capture_output=True, text=True)

    yield ask, server
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_the_hub_gives_one_format_and_its_cache_serves_without_it(hub, tmp_path):
    ask, server = hub
    first = ask(NAME)
    assert first.returncode == 0, first.stderr
    there = Path(first.stdout.strip())
    fetched = ("config.json", "vocab.txt", "model.safetensors")
    assert {p.name: p.read_bytes() for p in there.iterdir()} == {
        name: WHOLE[name] for name in fetched
    }
    assert Path(ask(NAME, HF_HUB_OFFLINE="1").stdout.strip()) == there
    server.shutdown()
    server.server_close()  # now it cannot be reached
    began = time.monotonic()
    assert Path(ask(NAME).stdout.strip()) == there
    other = ask("someone/else")
    assert time.monotonic() - began < 15
    assert "the hub and its cache have none" in other.stderr
    assert "speechssl/models/someone/else" in other.stderr
    assert "Retrying" not in other.stderr

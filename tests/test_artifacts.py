"""Files are whole or absent; hashes tell contents apart."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.torch import save_file

from speechssl.artifacts import (
    describe_refusal,
    hash_bytes,
    hash_files,
    hash_json,
    hold_output,
    lock_folder,
    name_refused_file,
    read_json,
    replacing,
    stage,
    write_json,
    write_text,
)
from speechssl.checkpoints import (
    MODELS,
    SCALE,
    SHIPPED,
    checkpoint_folder,
    dequantise,
    find_checkpoint,
    load_quantised,
    quantise,
)
from speechssl.errors import InputError

from .files import refused


def test_a_file_appears_under_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "new" / "folder" / "x.txt"
    with replacing(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == path.parent and temporary.suffix == ".txt"
    assert path.read_text() == "half"
    assert os.listdir(path.parent) == ["x.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, error):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("new")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_a_killed_process_leaves_no_file_under_the_name(tmp_path):
    code = (
        "import os, sys; from speechssl.artifacts import replacing\nwith replacing(sys.argv[1]) as "
        "t: t.write_text('half'); os._exit(9)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "x.txt"], env=environment)
    assert done.returncode == 9
    assert not (tmp_path / "x.txt").exists()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)


@pytest.mark.slow
@given(VALUES)
def test_json_comes_back_as_it_was(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json(path, value)
    assert read_json(path) == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "card.json"),
        (b"", "card.json"),
        (b"{", "card.json"),
        (b"\xff\xfe", "card.json"),
        (b"[" * 100_000, r"card.json as JSON \(it is nested too deeply\)"),
        (rb'{"a": "\ud83d\ude00 \uD800"}', r"card.json as JSON \('\\ud800' is no character\)"),
        (b'{"a": 1' + b"0" * 308 + b"}", r"card.json as JSON \(a number has 309 digits\)"),
    ],
)
def test_what_is_not_json_is_named(tmp_path, content, message):
    path = tmp_path / "card.json"
    if content is not None:
        path.write_bytes(content)
    refused(message, read_json, path)


def test_json_files_do_not_depend_on_the_order_of_keys_and_hashes_tell_contents_apart(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "语"})
    write_json(tmp_path / "b.json", {"a": "语", "b": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert "语" in (tmp_path / "a.json").read_text(encoding="utf-8")
    # the borders of the parts count
    assert hash_bytes(b"ab", b"c") != hash_bytes(b"a", b"bc") != hash_bytes(b"abc")
    assert (
        hash_bytes(b"ab", b"c") == hash_bytes(b"ab", b"c")
        and len(hash_bytes()) == len(hash_bytes(b"x")) == 16
    )
    for name, text in (("a", "1"), ("b", "2"), ("c", "1")):
        write_text(tmp_path / name, text)
    a, b, c = (Path(tmp_path / name) for name in "abc")
    assert hash_files([a, b]) == hash_files([c, b]) != hash_files([b, a]) and hash_files(
        [a]
    ) != hash_files([a, c])
    assert hash_json({"a": 1, "b": [2, 3]}) == hash_json({"b": [2, 3], "a": 1})
    assert hash_json({"a": 1}) != hash_json({"a": "1"}) and hash_json([1, 2]) != hash_json([2, 1])


def test_a_folder_belongs_to_what_it_was_first_made_from(tmp_path):
    made = {"data": "1", "options": {"steps": 2, "betas": (0.9, 0.98)}}
    for _ in range(2):  # the same again goes on
        with stage(tmp_path / "a", made):
            pass
    other = {"data": "1", "options": {"steps": 3, "betas": [0.9, 0.98]}, "seed": 1}
    with (
        pytest.raises(
            InputError,
            match=(
                r"other inputs \(options\.steps, seed "
                r"differ\)"
            ),
        ),
        stage(tmp_path / "a", other),
    ):
        pytest.fail("it was begun from other inputs")
    assert (tmp_path / "a/made_from.json").is_file()


def test_what_the_system_refuses_names_the_file_and_a_remedy_that_fits(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(OSError) as error, stage(path, {}):
            pass
        why = (
            r"file.* \(it is a file, or lies below one, and a folder is needed\); give another "
            r"path"
        )
        assert re.search(why, describe_refusal(error.value))
    assert "change its permissions" in describe_refusal(
        PermissionError(13, "Permission denied", "out")
    )


@pytest.mark.parametrize("at", ["tempfile.mkstemp", "os.replace"])
def test_a_file_that_cannot_be_written_is_called_by_its_own_name(tmp_path, monkeypatch, at):
    def refuse(*args, dir=tmp_path, prefix=".report-", suffix=".html"):
        raise PermissionError(
            13,
            "Permission denied",
            *args[:1] or [f"{dir}/{prefix}my27epb5{suffix}"],
            None,
            *args[1:],
        )

    monkeypatch.setattr(f"speechssl.artifacts.{at}", refuse)
    with pytest.raises(PermissionError) as error:
        write_text(tmp_path / "report.html", "x")
    assert describe_refusal(error.value).startswith(
        f"cannot use {tmp_path}/report.html (Permission denied); change its permissions"
    )
    assert not os.listdir(tmp_path)


def test_a_copy_of_a_folder_that_fails_names_its_first_file(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/weights").symlink_to("/nowhere")
    with pytest.raises(FileNotFoundError) as error, name_refused_file("a file"):
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert describe_refusal(error.value) == (
        f"cannot use {tmp_path}/a/weights (No such file or directory); check its path"
    )


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        (
            "[Errno 28] No space left on device: 'a/x' -> 'b/x'",
            "the disk of b/x is full; free space",
        ),
        (
            "[Errno 13] Permission denied: 'b/x'",
            "cannot use b/x (Permission denied); change its permissions",
        ),
        (
            "[Errno 13] Permission denied: 'a/x'",
            "cannot use a/x (Permission denied); change its permissions",
        ),
        ("`a/x` is a named pipe", "cannot use a/x (`a/x` is a named pipe); check its path"),
    ],
)
def test_a_copy_that_fails_names_the_side_that_was_refused(why, sentence):
    with pytest.raises(OSError) as error, name_refused_file("a file"):
        raise shutil.Error([("a/x", "b/x", why), ("a/y", "b/y", "[Errno 5] Input/output error")])
    assert describe_refusal(error.value).startswith(sentence)


def test_a_refused_command_leaves_no_folder_that_would_refuse_the_mended_one(tmp_path):
    with pytest.raises(InputError, match="too large"), stage(tmp_path / "a", {"window": 600}):
        (tmp_path / "a/tokenizer.json").write_text("{}")
        raise InputError("too large")
    assert not (tmp_path / "a").exists()
    with stage(tmp_path / "a", {"window": 300}):
        pass
    with pytest.raises(InputError, match="too large"), stage(tmp_path / "a", {"window": 300}):
        raise InputError("too large")
    assert (tmp_path / "a").exists()  # what was begun before is kept
    with pytest.raises(KeyboardInterrupt), stage(tmp_path / "b", {}):
        raise KeyboardInterrupt
    assert (tmp_path / "b/made_from.json").is_file()


def test_a_refused_command_leaves_what_was_there_and_what_took_long_to_make(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "a/b/c", "a/long"):
        with (
            pytest.raises(InputError),
            stage(tmp_path / folder, {"x": 1}, record="settings.json", lasting=("x", "*/parts")),
        ):
            assert json.loads((tmp_path / folder / "settings.json").read_text()) == {"x": 1}
            if folder == "a/long":
                (tmp_path / folder / "test/parts").mkdir(parents=True)
            raise InputError("damaged")
        assert (tmp_path / "a").exists() == (folder == "a/long")
    assert (
        not list((tmp_path / "empty").iterdir()) and (tmp_path / "a/long/settings.json").is_file()
    )
    with pytest.raises(
        InputError,
        match=(
            r"other inputs \(x differs\), see settings.json in it; choose another "
            r"folder or delete it$"
        ),
    ):
        stage(tmp_path / "a/long", {"x": 2}, record="settings.json").__enter__()


@pytest.mark.parametrize("place", ["empty", "link", "."])
def test_a_refused_command_leaves_an_empty_folder_as_it_was_and_says_why(
    place, tmp_path, monkeypatch
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty").chmod(0o2770)
    (tmp_path / "link").symlink_to("empty")
    monkeypatch.chdir(tmp_path / "empty" if place == "." else tmp_path)
    before = os.stat(place)
    with pytest.raises(InputError, match="damaged"), stage(place, {}):
        Path(place, "made").symlink_to(".")
        Path(place, "parts/a").mkdir(parents=True)
        raise InputError("damaged")
    after = os.stat(place)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode) and not os.listdir(
        place
    )
    assert (tmp_path / "link").is_symlink()
    monkeypatch.setattr(shutil, "rmtree", lambda _: Path("nowhere").unlink())
    with pytest.raises(InputError, match="damaged"), stage(place, {}):
        Path(place, "parts").mkdir()
        raise InputError("damaged")


def test_a_folder_that_does_not_say_what_it_holds_is_left_alone(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with (
        pytest.raises(InputError, match=("holds other files; choose another folder$")),
        stage(tmp_path, {}),
    ):
        pytest.fail("it holds something else")
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_stage_is_done_when_its_card_is_there(tmp_path):
    for done in (False, True):
        with stage(tmp_path / "a", {"data": "1"}, {"steps": 2}) as step:
            assert step.done == done and step.made_from == {"data": "1", "options": {"steps": 2}}
            if not step.done:
                assert step.finish({"what": "x"}) == {"what": "x"}
            assert step.card == {"what": "x"}


def test_one_run_at_a_time_has_a_folder(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom speechssl.errors import InputError\nfrom "
        "speechssl.artifacts import stage\n"
        "try:\n    with stage(Path(sys.argv[1]), {}): pass\nexcept InputError as error: "
        "sys.exit(str(error))"
    )
    run = [sys.executable, "-c", code, tmp_path / "a"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # the same thread may
    with (
        stage(tmp_path / "a", {}),
        lock_folder(tmp_path / "a"),
        lock_folder(tmp_path / "a", wait=False),
    ):
        refused = subprocess.run(run, env=environment, capture_output=True, text=True)
        assert refused.returncode == 1 and "another run is writing into" in refused.stderr
    assert subprocess.run(run, env=environment).returncode == 0


@pytest.mark.parametrize("late", ["open", "flock"])
@pytest.mark.parametrize("again", [False, True])
def test_a_lock_is_of_the_folder_that_has_the_name(
    late: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run lets the folder go, and removes it, right before a step of taking its lock; a
    third makes it again."""
    fcntl = pytest.importorskip("fcntl")
    folder, module = tmp_path / "out", fcntl if late == "flock" else os
    step = getattr(module, late)

    def removed(*given: Any) -> Any:
        monkeypatch.setattr(module, late, step)
        folder.rmdir()
        if again:
            folder.mkdir()
        return step(*given)

    monkeypatch.setattr(module, late, removed)
    with lock_folder(folder):
        handle = os.open(folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)


def test_an_empty_folder_that_another_run_holds_is_not_removed(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with hold_output(tmp_path / "new/x.json", file=True):
        handle = os.open(tmp_path / "new", os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert [*tmp_path.rglob("*")] == [tmp_path / "new"]
    os.close(handle)


@pytest.mark.parametrize("place", ["file/x.json", "long" * 62 + ".json"])
def test_a_lock_that_cannot_be_made_names_the_file_that_is_to_be_written(
    place: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as caught, hold_output(tmp_path / place, file=True):
        pytest.fail("nothing can be written there")
    assert describe_refusal(caught.value).startswith(f"cannot use {tmp_path / place} (")


# ---- named checkpoints: local folders first, then the hub's cache and the hub, which is a small
# server here


NAME, SHA = "someone/tiny-hubert", "0123456789abcdef0123456789abcdef01234567"
WHOLE = {
    "config.json": b"{}",
    "vocab.txt": b"a",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"the same again",
}
WHOLE |= {"tf_model.h5": b"and again", "onnx/config.json": b"{}"}


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_folders_come_first_then_models_with_and_without_their_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    monkeypatch.setenv(MODELS, str(models))
    refused(
        f"{MODELS} names .*models, which is not a folder", checkpoint_folder, NAME, "text encoder"
    )
    for place in ("tiny-hubert", NAME):
        there = folder(models / place)
        assert checkpoint_folder(NAME, "text encoder") == there
    # no name for the hub's client, which raises an error of its own
    odd = folder(models / "some--thing")
    assert find_checkpoint(odd.name) == odd
    here = folder(tmp_path / NAME)
    monkeypatch.chdir(tmp_path)
    assert checkpoint_folder(here, "speech encoder") == here and checkpoint_folder(
        NAME, "speech encoder"
    ) == Path(NAME)


@pytest.mark.parametrize("what", ["speech encoder", "text encoder", "recogniser"])
def test_offline_one_sentence_says_at_once_what_was_wanted_where(what, tmp_path, monkeypatch):
    monkeypatch.delenv(MODELS, raising=False)
    began = time.monotonic()
    with pytest.raises(InputError) as caught:
        checkpoint_folder(NAME, what)
    assert time.monotonic() - began < 5
    message = str(caught.value)
    assert (
        message.startswith(f"found no {what} at {NAME}: ")
        and ("HF_HUB_OFFLINE is set") in message
        and "config.json" in message
    )
    assert (
        f"hf download {NAME} --local-dir {Path.home() / '.cache/speechssl/models' / NAME}"
    ) in message
    assert "\n" not in message and ". " not in message
    monkeypatch.setenv(MODELS, str(tmp_path))
    refused(f"hf download {NAME} --local-dir {tmp_path}/{NAME}", checkpoint_folder, NAME, what)


@pytest.mark.parametrize(
    "name", ["/no/such/folder", "a/b/c", "../models", "a name", "", "owner/..", "-x/y"]
)
def test_what_cannot_be_on_the_hub_is_not_looked_for_there(name: str) -> None:
    with pytest.raises(
        InputError,
        match=(
            r"found no text encoder at .*; give a folder with "
            r"config.json.* or a hub id"
        ),
    ):
        checkpoint_folder(name or "/no/" + name, "text encoder")


def test_a_mistyped_shipped_name_is_corrected(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv(MODELS, str(tmp_path))
    for what, name, meant in (
        ("speech encoder", "people-en/encodr", "people-en/encoder"),
        ("speech encoder", "peple-en", "people-en"),
        ("codebook", "people-en/units.safetensor", "people-en/units.safetensors"),
    ):
        refused(f"no {what} at {name}; did you mean {meant}", checkpoint_folder, name, what)


def test_encoders_of_speech_and_text_are_loaded_by_name(
    hubert_folder, text_encoder, tokenizer, tmp_path, monkeypatch
):
    from speechssl.encoders.load import load_encoder
    from speechssl.textlm import load_text_encoder

    shutil.copytree(hubert_folder("layer"), tmp_path / "facebook" / "hubert-large-ll60k")
    for part in (text_encoder("longformer"), tokenizer):
        part.save_pretrained(tmp_path / "allenai" / "longformer-base-4096")
    monkeypatch.setenv(MODELS, str(tmp_path))
    encoder = load_encoder("facebook/hubert-large-ll60k")
    assert (encoder.name, encoder.hash) == (
        "facebook/hubert-large-ll60k",
        load_encoder(hubert_folder("layer")).hash,
    )
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
            self._json(
                [
                    {"type": "file", "path": f, "size": len(b), "oid": _etag(b)}
                    for f, b in self.files.items()
                ]
            )
        elif (
            path.startswith(f"/{NAME}/resolve/") and (name := path.split("/", 5)[-1]) in self.files
        ):
            self._send(200, self.files[name], ETag=f'"{_etag(self.files[name])}"')
        else:
            self._send(404, b"", **{"X-Error-Code": "RepoNotFound"})

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode())

    def _send(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in (
            {"Content-Length": str(len(content)), "X-Repo-Commit": SHA} | headers
        ).items():
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
    """A function (name, **environment) -> the process that looked for it, on a hub that has NAME
    alone."""
    _Hub.files, _Hub.asked = dict(WHOLE), []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = (
        "import sys; from speechssl.checkpoints import checkpoint_folder; "
        "print(checkpoint_folder(sys.argv[1], 'text encoder'))"
    )

    def ask(name: str, **more: str) -> subprocess.CompletedProcess[str]:
        address = f"http://127.0.0.1:{server.server_port}"
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.lower().endswith("_proxy") and k not in (MODELS, "HF_HUB_OFFLINE")
        }
        changes = {
            "HF_ENDPOINT": address,
            "HF_HOME": str(tmp_path / "cache"),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        return subprocess.run(
            [sys.executable, "-c", program, name],
            env=kept | changes | more,
            capture_output=True,
            text=True,
        )

    yield ask, server
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_the_hub_gives_one_format_and_its_cache_serves_without_it(
    hub: tuple[Ask, ThreadingHTTPServer], tmp_path: Path
) -> None:
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
    assert (
        "the hub cannot be reached" in other.stderr
        and "speechssl/models/someone/else" in other.stderr
    )
    assert "Retrying" not in other.stderr


@pytest.mark.slow
def test_older_checkpoints_have_pytorch_weights_and_a_cache_without_any_is_not_taken(
    hub: tuple[Ask, ThreadingHTTPServer],
) -> None:
    del _Hub.files["model.safetensors"]
    ask, _ = hub
    (Path(ask(NAME).stdout.strip()) / "pytorch_model.bin").unlink()
    assert "its cache" in ask(NAME, HF_HUB_OFFLINE="1").stderr


def test_a_name_that_the_hub_does_not_know_is_one_sentence(
    hub: tuple[Ask, ThreadingHTTPServer],
) -> None:
    ask, _ = hub
    assert "the hub has none of this name" in ask("someone/else").stderr


def test_the_cards_that_ship_are_as_they_were_written(capsys):
    cards = list(SHIPPED.rglob("*card.json"))
    assert cards and all(map(read_json, cards)) and not capsys.readouterr().err


# ---- weights as int8

matrices = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 9)),
    elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False),
)


@given(matrices)
def test_a_weight_is_off_by_at_most_a_254th_of_its_rows_largest_and_packs_again_to_the_same_bits(
    values,
):
    matrix = torch.from_numpy(values)
    packed = quantise({"w": matrix})
    assert packed["w"].dtype == torch.int8 and packed["w" + SCALE].shape == (len(matrix),)
    largest = matrix.abs().amax(1, keepdim=True)
    error = (dequantise(packed)["w"] - matrix).abs()
    assert (error <= largest * (1 / 254 + 1e-6) + 1e-14).all()
    again = quantise(dequantise(packed))
    assert torch.equal(again["w"], packed["w"]) and torch.equal(
        again["w" + SCALE], packed["w" + SCALE]
    )


def test_what_is_no_matrix_is_kept_to_the_bit():
    state = {
        "bias": torch.randn(7),
        "conv": torch.randn(3, 2, 5),
        "ids": torch.arange(6).reshape(2, 3),
        "one": torch.tensor(0.1),
    }
    packed = quantise(state)
    assert set(packed) == set(state)
    for name, value in dequantise(packed).items():
        assert torch.equal(value, state[name].float())


def test_kernels_have_a_scale_for_each_output_channel_and_pack_again_to_the_same_bits():
    state = {
        "conv": torch.randn(3, 2, 5) * torch.tensor([1e-3, 1.0, 1e3]).view(3, 1, 1),
        "bias": torch.randn(3),
    }
    packed = quantise(state, kernels=True)
    assert packed["conv"].dtype == torch.int8 and packed["conv" + SCALE].shape == (3,)
    back = dequantise(packed)
    largest = state["conv"].abs().amax((1, 2), keepdim=True)
    assert (
        (back["conv"] - state["conv"]).abs() <= largest * (1 / 254 + 1e-6)
    ).all() and torch.equal(back["bias"], state["bias"])
    again = quantise(back, kernels=True)
    assert all(torch.equal(again[name], value) for name, value in packed.items())


def test_a_file_says_itself_whether_it_is_quantised(tmp_path):
    state = {"w": torch.randn(3, 4), "b": torch.randn(3)}
    save_file(state, tmp_path / "plain.safetensors")
    save_file(quantise(state), tmp_path / "packed.safetensors")
    assert load_quantised(tmp_path / "plain.safetensors") is None
    back = load_quantised(tmp_path / "packed.safetensors")
    assert (
        back is not None
        and torch.equal(back["w"], dequantise(quantise(state))["w"])
        and torch.equal(back["b"], state["b"])
    )

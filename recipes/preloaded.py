"""`speechssl` and `python SCRIPT.py` in a process that has made its imports already: most of a
small command's time, and a recipe gives dozens of them.

python recipes/preloaded.py RUN.SH ARGUMENT ...
    what `recipe: {forked: true}` of a configuration does (options.sh)

`commands` gives a PATH with programs of these names at its front. They hand their arguments,
folder, environment and open files to a server, which has imported and done nothing else; it forks,
and the fork runs the console script or SCRIPT.py. Its end is passed back; where the program that
asked is killed or the tests are over, all that it started is killed.
Two things differ from a command of its own: modules are there before they are asked for, and all
commands hash strings alike. Therefore the killed run of superb and what recipes say without their
corpus are tested with the commands themselves.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

MODULES = (
    "transformers.models.auto.modeling_auto",
    "transformers.models.bert.modeling_bert",
    "transformers.models.hubert.modeling_hubert",
    "speechssl.cascade.system",
    "speechssl.cli",
    "speechssl.eval.robustness",
    "speechssl.eval.spoken_qa",
    "speechssl.eval.superb",
    "speechssl.pretrain.run",
    "speechssl.report.build",
    "speechssl.training",
    "jsonargparse",
    "librosa.effects",
    "matplotlib.pyplot",
    "sklearn.cluster",
    "sklearn.linear_model",
)
# Variables of these beginnings are read when Python starts or a library is imported: a call with
# other values is not forked.
EARLY = tuple(
    (
        "CUDA_VISIBLE HF_ HOME LANG LC_ LD_ MKL_ MPL NUMBA_ OMP_ OPENBLAS_ PYTHON TOKENIZERS_ "
        "TORCH "
        "TRANSFORMERS_ XDG_"
    ).split()
)
# What speechssl sets where it is not set, and tests that have run a verb hand on.
SET = {
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
SET |= {"TORCH_CPP_LOG_LEVEL": "ERROR"}
# by the first a recipe knows that its commands are forked already
PREFIX, SERVE = "preloaded-", "--serve"
CLIENT = """#!{python} -SE
import array, marshal, os, signal, socket, sys
environment = dict(os.environ)
arguments = [*{first!r}, *sys.argv[1:]]
early = {{k: v for k, v in ({set!r} | environment).items() if k.startswith({early!r})}}
if early != {known!r} or not "".join(arguments[:1]).endswith((".py", "/speechssl")):
    os.execv({program!r}, [{program!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({path!r})
    content = marshal.dumps((arguments, os.getcwd(), environment))
    streams = array.array("i", [0, 1, 2])
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)]
    server.sendmsg([len(content).to_bytes(4, "big")], rights)
    server.sendall(content)
    code = int.from_bytes(server.recv(4, socket.MSG_WAITALL) or b"\\0\\0\\0\\1", "big", signed=True)
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def early(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in (SET | dict(environment)).items() if k.startswith(EARLY)}


@contextmanager
def commands(modules: Sequence[str] = MODULES, **environment: str) -> Iterator[str]:
    """modules: to import. environment: of the commands, beside that of the tests.

    Where processes cannot be forked safely the PATH has the commands themselves.
    """
    bin = Path(sys.executable).parent
    usual = f"{bin}{os.pathsep}{os.environ['PATH']}"
    if not sys.platform.startswith("linux"):
        yield usual
        return
    # a socket's name has at most 107 bytes
    short = tempfile.gettempdir() if len(tempfile.gettempdir()) < 80 else "/tmp"
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=short) as folder:
        path, whole = f"{folder}/socket", os.environ | environment
        for name in ("speechssl", "python"):
            program = Path(folder, name)
            real = {
                "python": sys.executable,
                "program": str(bin / name),
                "first": [] if name == "python" else [str(bin / name)],
            }
            program.write_text(
                CLIENT.format(path=path, set=SET, early=EARLY, known=early(whole), **real)
            )
            program.chmod(0o755)
        command = [sys.executable, __file__, SERVE, path, *modules]
        with subprocess.Popen(
            command,
            env=whole,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as server:
            assert server.stdin and server.stdout
            try:
                assert server.stdout.readline() == b"ready\n"
                yield f"{folder}{os.pathsep}{usual}"
            finally:
                server.stdin.close()  # which ends it, and what still runs


def serve(path: str, *modules: str) -> list[str]:
    """Imports, then a fork for every call; returns in the forks, with the arguments of their
    calls."""
    for module in modules:
        importlib.import_module(module)
    # 1,000 patterns, of which every checkpoint asks
    if conversions := sys.modules.get("transformers.conversion_mapping"):
        conversions.get_checkpoint_conversion_mapping("hubert")
    # numba compiles it when it is first called: a second
    if effects := sys.modules.get("librosa.effects"):
        effects.time_stretch(importlib.import_module("numpy").zeros(2048, "float32"), rate=1.2)
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]  # what imports made is no fork's to free, which takes long
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        atexit.unregister(dynamo.dump_compile_times)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        gc.freeze()  # a fork copies what it touches
        print("ready", flush=True)
        # pidfd -> command, and the program that asked
        running: dict[int, tuple[int, socket.socket]] = {}
        while 0 not in (
            ready := select.select(
                [0, listener, *running, *(asked for _, asked in running.values())], [], []
            )[0]
        ):
            for over in running.keys() & set(ready):
                command, asked = running.pop(over)
                status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
                with asked, suppress(OSError):
                    asked.sendall(status.to_bytes(4, "big", signed=True))
                os.close(over)
            for command, asked in running.values():
                # it has closed its end: the program that asked is gone, and all that it started
                # goes with it
                if asked in ready:
                    with suppress(ProcessLookupError):
                        os.killpg(command, signal.SIGKILL)
            if listener in ready:
                asked, _ = listener.accept()
                head, about, *_ = asked.recvmsg(4, socket.CMSG_SPACE(12))
                content = asked.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                files = array.array("i", about[0][2] if about else b"")
                if (command := os.fork()) == 0:
                    listener.close()
                    for over, (_, other) in running.items():
                        os.close(over)
                        other.close()
                    asked.close()
                    return _take(content, files)
                for file in files:
                    os.close(file)
                with suppress(OSError):  # the fork does it, too: whichever comes first
                    os.setpgid(command, command)
                running[os.pidfd_open(command)] = command, asked
    for command, _ in running.values():
        os.killpg(command, signal.SIGKILL)
    os._exit(0)


def _take(content: bytes, files: Sequence[int]) -> list[str]:
    """Take on the folder, environment and files of the program that asked; one that was killed as
    it did has sent none."""
    os.setpgid(0, 0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    arguments, folder, environment = marshal.loads(content)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if "numpy" in sys.modules:  # Python draws another seed after a fork by itself
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    return arguments


if __name__ == "__main__":
    if sys.argv[1] != SERVE:
        with suppress(KeyboardInterrupt), commands() as path:
            sys.exit(
                subprocess.run(["bash", *sys.argv[1:]], env=os.environ | {"PATH": path}).returncode
            )
        sys.exit(130)
    sys.argv = serve(*sys.argv[2:])
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # to free what was imported would copy it first

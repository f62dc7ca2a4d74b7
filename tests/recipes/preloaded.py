"""`speechssl` and `python SCRIPT` in a process that has made its imports already: most of a small command's time, and a recipe
gives dozens of them.

`commands` gives a PATH with programs of these names at its front. They hand their arguments, folder, environment and open files to
a server, which forks; the fork runs `speechssl.cli.main` or the script, and its exit code comes back. At the end of the block what
still runs is killed.
"""

from __future__ import annotations

import array
import atexit
import gc
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLIENT = """#!{python} -SE
import array, json, os, socket, struct, sys
if {name!r} == "python" and not (sys.argv + [""])[1].endswith(".py"):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({path!r})
    content = json.dumps([[{name!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ)]).encode()
    files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    server.sendmsg([struct.pack("!I", len(content))], files)
    server.sendall(content)
    sys.exit((server.recv(1) or b"\\xff")[0])
"""


@contextmanager
def commands(**environment: str) -> Iterator[str]:
    """environment: what libraries read when they are imported."""
    with tempfile.TemporaryDirectory() as folder:  # its name is short enough for a socket's
        path = f"{folder}/socket"
        for name in ("speechssl", "python"):
            program = Path(folder, name)
            program.write_text(CLIENT.format(python=sys.executable, path=path, name=name))
            program.chmod(0o755)
        server = subprocess.Popen(
            [sys.executable, __file__, path],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert server.stdin and server.stdout
        try:
            assert server.stdout.readline() == b"ready\n"
            yield os.pathsep.join([folder, str(Path(sys.executable).parent), os.environ["PATH"]])
        finally:
            os.killpg(server.pid, signal.SIGKILL)  # and its forks
            server.wait()
            server.stdin.close()
            server.stdout.close()


def serve(path: str) -> None:
    import transformers.models.auto.modeling_auto
    import transformers.models.bert.modeling_bert
    import transformers.models.hubert.modeling_hubert  # noqa: F401

    import speechssl.cascade.system
    import speechssl.cli
    import speechssl.eval.robustness
    import speechssl.eval.spoken_qa
    import speechssl.eval.superb
    import speechssl.pretrain.run  # noqa: F401

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        gc.freeze()  # a fork copies what it touches
        print("ready", flush=True)
        while True:
            asked, _ = listener.accept()
            if os.fork() == 0:  # waits for the command
                listener.close()
                if (command := os.fork()) == 0:
                    _become(asked)
                    return
                code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
                asked.sendall(bytes([code if code >= 0 else 128 - code]))
                os._exit(0)
            asked.close()
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(asked: socket.socket) -> None:
    """Take on the arguments, folder, environment and files of the program that asked."""
    head, about, *_ = asked.recvmsg(4, socket.CMSG_SPACE(12))
    (size,) = struct.unpack("!I", head)
    content = b""
    while len(content) < size:
        content += asked.recv(size - len(content))
    files = array.array("i", about[0][2])
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    asked.close()
    arguments, folder, environment = json.loads(content)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments


if __name__ == "__main__":
    serve(sys.argv[1])
    from speechssl.cli import main

    try:
        if sys.argv[0] == "python":
            sys.argv = sys.argv[1:]
            sys.path[0] = str(Path(sys.argv[0]).parent)
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = 0
        else:
            code = main()
    except SystemExit as end:  # of argparse and scripts
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # to free what was imported would copy it first

"""Run the commands of a recipe without the seconds in which each imports torch and transformers,
for tests: a smoke run starts up to sixty commands.

`python warm.py serve SOCKET` imports them once and forks a process for every command that it is
sent; `python warm.py call SOCKET speechssl VERB ...` sends one, with its files, folder and
environment, and ends with its exit code. Recipes know nothing of this: `write_commands` makes a
folder for PATH in which `speechssl` and `python` are such calls.
"""

import json
import os
import socket
import sys

BIG = 1 << 20  # bytes of arguments and environment


def call(path, words):
    """Let the server run a command, and return its exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        message = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
        socket.send_fds(server, [json.dumps(message).encode()], [0, 1, 2])
        server.shutdown(socket.SHUT_WR)
        code = server.recv(4)
    return int(code or b"1")


def serve(path):
    """Import the modules of the package, and fork a process for every command."""
    import pkgutil
    import signal
    from contextlib import suppress
    from importlib import import_module

    import speechssl
    import speechssl.training

    for module in pkgutil.walk_packages(speechssl.__path__, "speechssl."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # of an extra that is not installed
                import_module(module.name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forked processes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        while True:
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                answer(client)
            client.close()


def answer(client):
    """Run the command of a client in this process, which ends with it or with the client."""
    import threading
    import traceback

    message, files, _, _ = socket.recv_fds(client, BIG, 3)
    while more := client.recv(BIG):
        message += more
    sent = json.loads(message)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(sent["folder"])
    os.environ.clear()
    os.environ.update(sent["environment"])
    threading.Thread(target=kill_with, args=(client.dup(),), daemon=True).start()
    try:
        code = run(sent["words"])
    except SystemExit as error:
        code = exit_code(error)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    client.send(str(code).encode())
    os._exit(code)


def kill_with(client):
    """Kill this process when its client is gone."""
    import select
    import signal

    poll = select.poll()
    poll.register(client, select.POLLHUP)
    poll.poll()
    os.kill(os.getpid(), signal.SIGKILL)


def exit_code(error):
    """Return the exit code that Python makes of a SystemExit: 1 for a sentence, which is
    printed."""
    if isinstance(error.code, str):
        print(error.code, file=sys.stderr)
        return 1
    return error.code or 0


def run(words):
    """Run `speechssl VERB ...` or `python FILE ...` as if this process had been started for it."""
    import runpy

    from speechssl.cli import main

    if words[0] == "speechssl":
        sys.argv = words
        return main(words[1:])
    sys.argv = words[1:]
    sys.path[0] = str(os.path.dirname(os.path.abspath(words[1])))
    runpy.run_path(words[1], run_name="__main__")
    return 0


def write_commands(folder, path):
    """Write the programs `speechssl` and `python` into a folder, which call the server at a socket.
    Other uses of Python, such as `python -c`, are its own."""
    here = os.path.abspath(__file__)
    client = f'"{sys.executable}" -ISE "{here}" call "{path}"'
    texts = {
        "speechssl": f'#!/bin/sh\nexec {client} speechssl "$@"\n',
        "python": (
            f'#!/bin/sh\ncase $1 in *.py) exec {client} python "$@" ;; esac\n'
            f'exec "{sys.executable}" "$@"\n'
        ),
    }
    for name, text in texts.items():
        file = os.path.join(folder, name)
        with open(file, "w", encoding="utf-8") as script:
            script.write(text)
        os.chmod(file, 0o755)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(call(sys.argv[2], sys.argv[3:]))

"""The command line in processes forked from one that has imported everything, so they begin at once.

Run as a program, this file is a client of ``magcli_for_scripts``: it passes its arguments and streams on.
"""

import json
import os
import socket
import sys

PRELOADED = ["forking", "torch", "transformers", "magcli.cli", "magcli.rl.loop", "magcli.rl.trainer", "sympy"]
"""What the process that others are forked from has imported."""


def fork_server():
    """The context of that process, which starts with the first process that is forked from it."""
    import multiprocessing

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


class Descriptor:
    """A file descriptor that the forked process gets."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        from multiprocessing.reduction import DupFd

        return _received, (DupFd(self.number),)


def _received(copy):
    return copy.detach()


def fork_magcli(arguments, streams, *, env=None, cwd=None, largest=None, session=False, place=None):
    """Start the command line with these three descriptors as its streams; returns a multiprocessing.Process.

    Args:
        env: Its environment; this process's by default.
        largest: Size in bytes that no file may grow beyond, as on a full disk.
        session: Start it in a new session.
        place: Module and dotted name of a function; the process prints "reached" to stderr when it is called.
    """
    given = list(map(str, arguments)), list(map(Descriptor, streams)), dict(env or os.environ), str(cwd or os.getcwd())
    process = fork_server().Process(target=_command_line, args=(*given, largest, session, place))
    process.start()
    return process


def _command_line(arguments, streams, environment, folder, largest, session, place):
    import resource

    if session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode, closefd=False) for n, mode in enumerate(["r", "w", "w"]))
    if largest:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    os.environ.clear()
    os.environ |= environment
    os.chdir(folder)
    sys.argv = ["magcli", *arguments]
    if place:
        _announce(*place)
    from magcli.__main__ import main

    main()


def _announce(module, name):
    import importlib

    *owners, attribute = name.split(".")
    owner = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    inner = getattr(owner, attribute)

    def announced(*arguments, **options):
        print("reached", file=sys.stderr, flush=True)
        return inner(*arguments, **options)

    setattr(owner, attribute, announced)


class Running:
    """A command line that was started, with the parts of ``subprocess.Popen`` that tests use; stderr is a pipe."""

    def __init__(self, *arguments, **options):
        ours, theirs = os.pipe()
        with open(os.devnull, "r+b") as nothing:
            streams = [nothing.fileno(), nothing.fileno(), theirs]
            self.process = fork_magcli(arguments, streams, **options)
        os.close(theirs)
        self.pid, self.stderr = self.process.pid, open(ours, "rb")  # noqa: SIM115

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        if failure is not None:
            self.process.kill()  # a test that has failed does not wait for it
        self.stderr.close()
        self.process.join()

    @property
    def returncode(self):
        return self.process.exitcode

    def poll(self):
        return self.process.exitcode

    def wait(self, timeout=None):
        import subprocess

        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("magcli", timeout)
        return self.process.exitcode

    def kill(self):
        self.process.kill()

    def send_signal(self, number):
        os.kill(self.pid, number)

    def communicate(self, timeout=None):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool, self.stderr:
            errors = pool.submit(self.stderr.read)
            self.wait(timeout)
            return None, errors.result(timeout)


def magcli_for_scripts(folder):
    """Write a program ``magcli`` into a folder, for shells and make, that runs in processes forked here.

    The program ends when the forked process does, with its exit code; signals that it gets are not passed on.
    """
    import threading

    place = folder / "magcli.socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen()
    threading.Thread(target=_serve, args=(listener,), daemon=True).start()
    program = folder / "magcli"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {__file__} {place} "$@"\n')
    program.chmod(0o755)
    return program


def _serve(listener):
    import threading

    while True:
        client, _ = listener.accept()
        threading.Thread(target=_serve_one, args=(client,), daemon=True).start()


def _serve_one(client):
    with client:
        start, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
        with client.makefile("rb") as rest:
            asked = json.loads(start + rest.read())
        process = fork_magcli(asked["arguments"], streams, env=asked["environment"], cwd=asked["folder"])
        for stream in streams:
            os.close(stream)
        process.join()
        client.sendall(str(process.exitcode).encode())


def _ask():
    place, *arguments = sys.argv[1:]
    asked = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        text = json.dumps(asked).encode()
        server.sendall(text[socket.send_fds(server, [text], [0, 1, 2]) :])
        server.shutdown(socket.SHUT_WR)
        for stream in (0, 1, 2):
            os.close(stream)
        code = int(server.recv(16))
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    _ask()

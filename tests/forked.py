"""Python programs in processes forked from one that has imported Rhino's daemons, which is most of their start.

They end when nobody holds their `Forked` or `Popen` any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
PYTHON_PATH = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
RHINO = "from rhino.cli.main import main\nmain()"  # the command
IMPORTED = ("uvloop", "rhino.cli.main", "rhino.daemons.manager_process", "worker_runtime.sidecar")
MESSAGE_BYTES_MAX = 150_000  # the buffer of a socket has 200,000
_turn = threading.Lock()


class Forked:
    """What the tests use of an `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, end: asyncio.Task[int]) -> None:
        self.pid = pid
        self.stdout = stdout
        self._end = end

    @property
    def returncode(self) -> int | None:
        return self._end.result() if self._end.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended a moment ago
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def start(program: str, *arguments: str, env: Mapping[str, str], stderr: int = 2) -> Forked:
    """Runs the text of a program, as `python -c` does. Umask, folder and limit of files are those of this process."""
    out, written = os.pipe()
    try:
        connection = _call(program, arguments, env, written, stderr)
    finally:
        os.close(written)
    stdout = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(out, "rb", buffering=0))
    told, writer = await asyncio.open_unix_connection(sock=connection)

    async def end() -> int:
        try:
            return int(await told.readline())
        finally:
            writer.close()

    return Forked(int(await told.readline()), stdout, asyncio.create_task(end()))


class Popen:
    """What the tests use of a `subprocess.Popen` with text as output. `stdout`: None is a pipe."""

    def __init__(
        self,
        program: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
        stderr: int = 2,
    ) -> None:
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading)
        self.returncode: int | None = None
        try:
            self._told = _call(program, arguments, env, writing if stdout is None else stdout, stderr)
        finally:
            os.close(writing)
        self.pid = self._number()

    def _number(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            byte = self._told.recv(1)
            assert byte, "the process that forks has ended"
            line += byte
        return int(line)

    def wait(self, timeout_s: float) -> int:
        if self.returncode is None:
            self._told.settimeout(timeout_s)
            self.returncode = self._number()
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def run(
    program: str, *arguments: str | bytes, env: Mapping[str, str] | None = None, unread: bool = False
) -> subprocess.CompletedProcess[str]:
    """Waits for its end. `bytes`: what is no UTF-8. `unread`: whoever read its output has gone."""
    given = [os.fsdecode(argument) for argument in arguments]
    reading, lost = os.pipe()
    os.close(reading)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, os.fdopen(lost, "wb"):
        process = Popen(program, *given, env=env, stdout=lost if unread else out.fileno(), stderr=err.fileno())
        process.stdout.close()
        code = process.wait(60.0)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
        return subprocess.CompletedProcess(given, code, *said)


def rhino(*arguments: str | bytes) -> subprocess.CompletedProcess[str]:
    return run(RHINO, *arguments)


@contextlib.contextmanager
def daemon(*arguments: str, log: Path = Path(os.devnull)) -> Iterator[dict[str, str]]:
    """`rhino manager` or `rhino sidecar`. Yields its readiness line, and stops it at the end."""
    with log.open("ab") as stderr:
        process = Popen(RHINO, *arguments, stderr=stderr.fileno())
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        assert process.wait(40.0) == 0
        process.stdout.close()


def _call(
    program: str, arguments: tuple[str, ...], env: Mapping[str, str] | None, stdout: int, stderr: int
) -> socket.socket:
    """Says two lines: the id of the process, and its exit code when it has ended. It ends with the connection."""
    umask = os.umask(0o077)
    os.umask(umask)
    call = {
        "program": program,
        "arguments": arguments,
        "env": dict(os.environ if env is None else env),
        "umask": umask,
        "folder": os.getcwd(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    message = json.dumps(call).encode()
    assert len(message) <= MESSAGE_BYTES_MAX
    ours, theirs = socket.socketpair()
    with theirs, _turn:
        socket.send_fds(_server(), [message], [theirs.fileno(), stdout, stderr])
    return ours


@functools.cache
def _server() -> socket.socket:
    """It ends with this process, and is no child of it: some tests look for children that are left."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.run(
            [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PYTHON_PATH},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            check=True,
        )
    return ours


def serve(calls: socket.socket) -> dict[str, Any]:
    """Returns in each process that is to run a program."""
    assert len(os.listdir("/proc/self/task")) == 1, "only the thread that forks lives on"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests and the programs
    while True:
        message, given, _, _ = socket.recv_fds(calls, MESSAGE_BYTES_MAX, 3)
        if not message:
            sys.exit()
        if os.fork() == 0:
            calls.close()
            said, out, err = given
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, interrupted)
                os.dup2(out, 1)
                os.dup2(err, 2)
                for fd in given:
                    os.close(fd)
                call: dict[str, Any] = json.loads(message)
                return call
            os.close(out)
            os.close(err)
            _wait(said, pid)
        for fd in given:
            os.close(fd)


def _wait(said: int, pid: int) -> NoReturn:
    """For the end of the process, or of the one that wanted it."""
    ended = os.pidfd_open(pid)
    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    waiting.register(said, 0)  # only that its other side is closed
    with contextlib.suppress(BrokenPipeError):
        os.write(said, b"%d\n" % pid)
        if ended not in dict(waiting.poll()):
            os.kill(pid, signal.SIGKILL)
        os.write(said, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def main() -> None:
    if os.fork():
        os._exit(0)
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    call = serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(call["env"])
    os.umask(call["umask"])
    os.chdir(call["folder"])
    resource.setrlimit(resource.RLIMIT_NOFILE, call["files"])
    sys.argv = ["-c", *call["arguments"]]
    exec(compile(call["program"], "<program>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()

"""A sender and a receiver of one transport, as processes, and what they are asked to do."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.usage import Meter
from rhino_core.errors import RhinoError

TIMEOUT_S = 180.0
END_S = 10.0
_SCRATCH_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """Folders of a run: certificates and source files, which all pairs share, and where receivers write."""

    certificates: Path
    source: Path
    received: Path


class End:
    """One of the two processes. It ends with its standard input."""

    def __init__(self, end: str, arguments: Sequence[str], log: Path, certificates: Path) -> None:
        self._name = end
        self._log = log
        self._unread = b""
        environment = os.environ | {"OPENSSL_CONF": str(certificates / "openssl.cnf")}
        command = [sys.executable, "-m", "benchmarks.transports.ends", end, *arguments]
        with log.open("wb") as sink:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, env=environment
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(command).encode() + b"\n")
        self._popen.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line. Raises RhinoError if there is none in time, or the process has ended."""
        assert self._popen.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self._popen.stdout], [], [], TIMEOUT_S)[0]:
                raise RhinoError(f"the {self._name} has not answered within {TIMEOUT_S:g} s{self._tail()}")
            data = os.read(self._popen.stdout.fileno(), 1 << 16)
            if not data:
                raise RhinoError(f"the {self._name} has ended with code {self._popen.wait(END_S)}{self._tail()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        try:
            self._popen.wait(END_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._popen.stdout.close()

    def _tail(self) -> str:
        return "".join(f"\n  | {line}" for line in self._log.read_text(errors="replace").splitlines()[-15:])


@dataclass(frozen=True, slots=True)
class Bulk:
    """One file, sent, written and checked. Processor time of both processes, in seconds."""

    wall_s: float
    sender_cpu_s: float
    receiver_cpu_s: float


class Pair:
    """Both ends, connected and warm."""

    def __init__(self, subject: str, place: Place, grpc: Sequence[str] = ()) -> None:
        """`subject` as `subjects.parse` takes it; `grpc`: options of channels and servers. Raises RhinoError."""
        self._place = place
        self._ends: list[End] = []
        place.received.mkdir(parents=True)
        common = ["--subject", subject, "--certificates", str(place.certificates), "--grpc", *grpc, "--folder"]
        try:
            receiver = self._start("receiver", [*common, str(place.received)])
            ports = json.dumps(receiver.answer()["ports"])
            self._sender = self._start("sender", [*common, str(place.source), "--ports", ports])
            self._sender.answer()
        except BaseException:
            self.close()
            raise

    def _start(self, end: str, arguments: Sequence[str]) -> End:
        log = self._place.received.parent / f"{self._place.received.name}-{end}.log"
        started = End(end, arguments, log, self._place.certificates)
        self._ends.append(started)
        return started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def bulk(self) -> Bulk:
        receiver, sender = self._ends
        with Meter([receiver.pid]) as theirs, Meter([sender.pid]) as mine:
            wall_s = self._sender.ask(do="bulk")["wall_s"]
        return Bulk(wall_s, mine.used.cpu_s, theirs.used.cpu_s)

    def commits(self, count: int) -> list[float]:
        """Milliseconds of each."""
        found: list[float] = self._sender.ask(do="commits", count=count)["ms"]
        return found

    def beside(self, count: int) -> tuple[list[float], float]:
        """Milliseconds of each commit, and MB/s of the data files that were sent meanwhile."""
        found = self._sender.ask(do="beside", count=count)
        return found["ms"], found["bulk_mb_per_s"]

    def received(self) -> list[Path]:
        """Files that are complete, in the order of their arrival."""
        return sorted((self._place.received / "store").iterdir())

    def remove_received(self) -> None:
        for path in self.received():
            path.unlink()
        os.sync()  # nobody pays for writing back what another one wrote

    def free_pages(self, size_bytes: int) -> None:
        """Writes and deletes so many bytes, so that the next file gets pages that were freed just now.

        A virtual machine may hand pages that are free for longer back to its host. They cost several times as much.
        """
        path, piece = self._place.received / "scratch", bytes(_SCRATCH_BYTES)
        with path.open("wb", buffering=0) as file:
            for _ in range(0, size_bytes, len(piece)):
                file.write(piece)
        path.unlink()

    def close(self) -> None:
        for end in reversed(self._ends):
            end.close()
        shutil.rmtree(self._place.received, ignore_errors=True)

"""Lists the files and functions of this project that one commit crosses.

    python -m tests.worker_runtime.commit_path          # the path: how the commit gets from each stage to the next
    python -m tests.worker_runtime.commit_path --all    # every function that is entered meanwhile, with its caller

Two real sidecars run in this process. A client commits changelogs of one file, and every commit needs the copy of the
other sidecar. The list begins with the Commit call at the writer and ends with its reply, so the replica's part is in
it. It leaves out what happens before (in the executor) and after (the report of the batch).

The path consists of the call stacks at the stages in `STAGES`. A reader who follows the commit opens these functions.
They call others that answer a question or convert a value and return: `--all` has those, too.

Background work such as heartbeats falls into few of the commits, so only functions count that most commits have
entered. Not counted: generated code, and functions without a name of their own (lambdas, comprehensions).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import math
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

from rhino_core.ids import StoreId, Version
from rhino_pb import replication_pb2
from tests.worker_runtime.cluster import ROOT, Cluster, Process, changelog_bytes
from tests.worker_runtime.fake_manager import FakeManager
from worker_runtime.sidecar import run_sidecar
from worker_runtime.storage.disk import threads

STAGES = {  # where a commit reaches a disk, a connection, a machine or the waiting caller
    ("worker_runtime/storage/disk/files.py", "rename_in"),
    ("worker_runtime/storage/index/index.py", "Index.put_file"),
    ("worker_runtime/storage/index/stored_files.py", "StoredFiles.add"),
    ("worker_runtime/storage/index/stored_files.py", "StoredFiles.set_visible"),
    ("worker_runtime/storage/disk/incoming.py", "Incoming.write"),
    ("worker_runtime/storage/disk/incoming.py", "Incoming.finish"),
    ("worker_runtime/protocol/chain/machine.py", "ChainMachine.handle"),
    ("worker_runtime/protocol/chain/commits.py", "Commits.add"),
    ("worker_runtime/protocol/chain/commits.py", "Commits.pop"),
    ("worker_runtime/protocol/chain/outbox.py", "Outbox.offer"),
    ("worker_runtime/protocol/chain/outgoing.py", "Outgoing.acknowledged"),
    ("worker_runtime/protocol/chain/receiving.py", "Upstreams.acknowledge"),
    ("worker_runtime/push/connection.py", "Connection.post"),
    ("worker_runtime/push/connection.py", "Connection._flush"),
    ("worker_runtime/push/core/sender.py", "PushSender.next_event"),
    ("worker_runtime/push/core/receiver.py", "PushReceiver.next_event"),
    ("worker_runtime/push/inbound_stream.py", "InboundStream._start"),
    ("worker_runtime/replication.py", "Replication._answer"),
}
PACKAGES = ("worker_runtime/", "rhino_core/", "replication_manager/", "handover_manager/")
STORE = StoreId("job", 0, 3, "default")
WARM_UP, COMMITS = 10, 20  # the first commits open the link and learn names
PAUSE_S = 0.05  # between commits: the end of one does not belong to the next
HEARTBEAT_S = 5.0
START_S = 60.0  # for a sidecar, on a busy machine


@dataclass(frozen=True)
class Crossed:
    """A function that most commits entered.

    `caller`: the project's function that called it last. `on_path`: it led to a stage.
    """

    file: str
    function: str
    caller: str
    on_path: bool


class Tracer:
    """Records the functions that threads enter while it is active."""

    def __init__(self) -> None:
        self._active = False
        self._entered: dict[CodeType, CodeType | None] = {}
        self._on_path: set[CodeType] = set()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """For this thread and those that start meanwhile."""
        sys.setprofile(self._profile)
        threading.setprofile(self._profile)
        try:
            yield
        finally:
            threading.setprofile(None)
            sys.setprofile(None)

    @contextlib.contextmanager
    def active(self) -> Iterator[tuple[dict[CodeType, CodeType | None], set[CodeType]]]:
        """Yields the entered functions with their callers, in order of first entry, and those that led to a stage."""
        self._entered, self._on_path = {}, set()
        self._active = True
        try:
            yield self._entered, self._on_path
        finally:
            self._active = False

    def _profile(self, frame: FrameType, what: str, argument: object) -> None:
        if not self._active or what != "call" or not _counts(frame.f_code):
            return
        stack = [code for code in _stack(frame) if _counts(code)]
        self._entered.setdefault(stack[0], stack[1] if len(stack) > 1 else None)
        if (_file(stack[0]), stack[0].co_qualname) in STAGES:
            self._on_path.update(stack)


def _stack(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def _counts(code: CodeType) -> bool:
    return not code.co_name.startswith("<") and _file(code) != ""


@functools.cache
def _file(code: CodeType) -> str:
    """The file below the project's root; empty for code of others."""
    path = Path(code.co_filename)
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return name if name.startswith(PACKAGES) else ""


class _PatientManager(FakeManager):
    """Heartbeats are rare, so that few commits meet one."""

    async def Register(self, request: replication_pb2.RegisterRequest, context: Any) -> replication_pb2.RegisterReply:
        reply = await super().Register(request, context)
        reply.heartbeat_interval_s = HEARTBEAT_S
        return reply


@contextlib.asynccontextmanager
async def _pair(folder: Path) -> AsyncIterator[Process]:
    """Sidecars "a" and "b" in this process, with their manager. Yields "a"."""
    async with Cluster(folder, _PatientManager()) as cluster, asyncio.TaskGroup() as tasks:
        running: list[asyncio.Task[None]] = []
        for name in ("a", "b"):
            ready = asyncio.Event()
            settings = cluster.make(name).settings
            running.append(tasks.create_task(run_sidecar(settings, lambda _, ready=ready: ready.set())))  # type: ignore[misc]
            async with asyncio.timeout(START_S):
                await ready.wait()
        yield cluster.sidecars["a"]
        for task in running:
            task.cancel()


async def commit_path(folder: Path, *, commits: int = COMMITS) -> list[Crossed]:
    """The functions that a commit crosses, in their order. `folder`: for the sidecars' data."""
    tracer = Tracer()
    runs: list[tuple[dict[CodeType, CodeType | None], set[CodeType]]] = []
    # On a slow disk threads write small files, too (storage/disk/threads.py). The path is that of a fast one.
    with patch.object(threads, "SLOW_S", math.inf), tracer.installed():
        async with _pair(folder) as writer, writer.attach(replicas=1) as client:
            for number in range(1, WARM_UP + commits + 1):
                lineage = [Version(n, f"id{n}") for n in range(1, number)]
                with tracer.active() as seen:
                    reply = await client.commit(STORE, Version(number, f"id{number}"), changelog_bytes(number), lineage)
                if reply.copies != 2:
                    raise AssertionError(f"the replica was not waited for: {reply}")
                runs += [seen] if number > WARM_UP else []
                await asyncio.sleep(PAUSE_S)
    usual = _of_most([set(entered) for entered, _ in runs])
    on_path = _of_most([on_path for _, on_path in runs])
    entered = {code: caller for entered, _ in runs for code, caller in entered.items()}
    return [_crossed(code, caller, on_path) for code, caller in entered.items() if code in usual]


def _of_most(sets: list[set[CodeType]]) -> set[CodeType]:
    found = Counter(code for one in sets for code in one)
    return {code for code, times in found.items() if 2 * times > len(sets)}


def _crossed(code: CodeType, caller: CodeType | None, on_path: set[CodeType]) -> Crossed:
    called_by = "" if caller is None else f"{_file(caller)}:{_name(caller)}"
    return Crossed(_file(code), _name(code), called_by, code in on_path)


def _name(code: CodeType) -> str:
    return code.co_qualname.replace(".<locals>", "")


def counts(path: list[Crossed]) -> str:
    return f"{len({crossed.file for crossed in path})} files, {len(path)} functions"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.worker_runtime.commit_path", description=__doc__)
    parser.add_argument("--all", action="store_true", help="print every function, with its caller")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        everything = asyncio.run(commit_path(Path(folder)))
    path = [crossed for crossed in everything if crossed.on_path]
    for file, functions in groupby(everything if arguments.all else path, key=lambda crossed: crossed.file):
        print(file)
        for crossed in functions:
            caller = f"  <- {crossed.caller or 'a server, a task or a thread'}" if arguments.all else ""
            print(f"    {crossed.function}{caller}")
    print(f"path: {counts(path)}; entered: {counts(everything)}")


if __name__ == "__main__":
    main()

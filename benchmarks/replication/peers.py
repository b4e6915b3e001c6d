"""Peers of Rhino's chain: rsync daemons in a chain, bare gRPC streams in a chain, cp."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop

from benchmarks.replication import bare_stream
from benchmarks.replication.source import Source
from benchmarks.usage import Meter, Used
from rhino.testing.process import Process
from rhino.testing.reaper import Reaper

GROUPS = 8  # of files, pipelined along a chain of rsync daemons
START_TIMEOUT_S = 20.0


def copy(source: Source, folder: Path) -> Used:
    """`cp` of all files."""
    with Meter([os.getpid()]) as meter:
        subprocess.run(["cp", "-r", str(source.folder), str(folder)], check=True)
    return meter.used


def bare(source: Source, folder: Path, hops: int, chunk_bytes: int) -> Used:
    """One gRPC stream per hop."""
    with _processes() as start:
        following: list[str] = []
        pids = [os.getpid()]
        for hop in reversed(range(hops)):
            arguments = ["-m", "benchmarks.replication.bare_stream", str(folder / str(hop)), *following]
            receiver = start(f"bare-{hop}", [sys.executable, *arguments], folder)
            address = receiver.wait_for_match(r"listening on (\S+)", timeout_s=START_TIMEOUT_S)[1]
            following = ["--next", address]
            pids.append(receiver.pid)
        with Meter(pids) as meter:
            uvloop.run(bare_stream.send(address, source.paths, chunk_bytes))
        return meter.used


def rsync_available() -> bool:
    return shutil.which("rsync") is not None


def rsync(source: Source, folder: Path, hops: int) -> Used:
    """rsync daemons in a chain: each group of files goes on to the next while the following group comes in."""
    with _processes() as start:
        pids, urls = [os.getpid()], []
        for hop in range(hops):
            target, port = folder / str(hop), _free_port()
            target.mkdir(parents=True)
            conf = folder / f"rsyncd-{hop}.conf"
            identity = f"uid = {os.getuid()}\ngid = {os.getgid()}"
            conf.write_text(f"use chroot = no\n{identity}\n[data]\npath = {target}\nread only = no\n")
            daemon = start(
                f"rsyncd-{hop}",
                ["rsync", "--daemon", "--no-detach", f"--config={conf}", f"--port={port}", "--address=127.0.0.1"],
                folder,
            )
            daemon.wait_for("open port", lambda port=port: _accepts(port) or None, timeout_s=START_TIMEOUT_S)  # type: ignore[misc]
            pids.append(daemon.pid)
            urls.append(f"rsync://127.0.0.1:{port}/data/")
        groups = [source.paths[first::GROUPS] for first in range(GROUPS)]
        with Meter(pids) as meter, ThreadPoolExecutor(hops) as pool:
            sent = [list(group) for group in groups]
            for hop, url in enumerate(urls[:-1]):
                sent = _pipelined(pool, sent, url, folder / str(hop), urls[hop + 1])
            if hops == 1:
                _push([path for group in sent for path in group], urls[0])
        return meter.used


def _pipelined(
    pool: ThreadPoolExecutor, groups: list[list[Path]], first: str, first_folder: Path, second: str
) -> list[list[Path]]:
    """Pushes group by group to `first`, and each one from there to `second` while the next comes in."""
    forwarded, onward = [], []
    for group in groups:
        _push(group, first)
        arrived = [first_folder / path.name for path in group]
        forwarded.append(arrived)
        onward.append(pool.submit(_push, arrived, second))
    for push in onward:
        push.result()
    return forwarded


def _push(paths: list[Path], url: str) -> None:
    subprocess.run(["rsync", "--whole-file", "--inplace", *map(str, paths), url], check=True)


@contextlib.contextmanager
def _processes() -> Iterator[Callable[[str, list[str], Path], Process]]:
    """Gives a function that starts a process. It ends with the context."""
    started: list[Process] = []
    with Reaper() as reaper:

        def start(name: str, command: list[str], folder: Path) -> Process:
            folder.mkdir(parents=True, exist_ok=True)
            process = Process(name, command, log_dir=folder, env=dict(os.environ), reaper=reaper)
            started.append(process)
            return process

        try:
            yield start
        finally:
            for process in started:
                process.terminate(timeout_s=5)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        time.sleep(0.05)
        return False
    return True

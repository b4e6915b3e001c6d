"""Processor time and peak memory of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import psutil


@dataclass(frozen=True, slots=True)
class Used:
    """Wall time, and processor time (user and system) of all processes watched, in seconds."""

    wall_s: float
    cpu_s: float


class Meter:
    """Measures from `__enter__` to `__exit__`: `used`. `pids`: their ended and collected children count as well."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]

    def __enter__(self) -> Self:
        self._cpu, self._wall = self._cpu_s(), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        wall_s = time.monotonic() - self._wall
        self._await_children()
        self.used = Used(wall_s, self._cpu_s() - self._cpu)

    def _await_children(self) -> None:
        """Daemons collect their children, and so their processor time, a moment after the work is done."""
        deadline = time.monotonic() + 5
        while any(p.children() for p in self._processes if p.pid != os.getpid()) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _cpu_s(self) -> float:
        return sum(_own_cpu_s(process.pid) + sum(process.cpu_times()[2:4]) for process in self._processes)


def _own_cpu_s(pid: int) -> float:
    """The processor time of all threads, also of ended ones. It is exact: /proc counts hundredths of a second only."""
    return time.clock_gettime(~pid << 3 | 2)  # the clock's number as clock_getcpuclockid(3) makes it


def peak_resident_bytes(pid: int) -> int:
    """The highest resident size of the process so far."""
    return _status_bytes(pid, "VmHWM")


def anonymous_bytes(pid: int) -> int:
    """Memory of the process without a file behind it: its allocations."""
    return _status_bytes(pid, "RssAnon")


def _status_bytes(pid: int, field: str) -> int:
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines[field].split()[0]) * 1024

"""The health of a daemon: named checks. gRPC health, HTTP, metrics and systemd get the same answer."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Check: TypeAlias = Callable[[], str]  # returns why the check fails; empty: it passes


@dataclass(frozen=True, slots=True)
class Report:
    """Results of checks by name, as `Check` returns them."""

    failures: Mapping[str, str]

    @property
    def good(self) -> bool:
        return not any(self.failures.values())

    def text(self) -> str:
        """A line for each check, for people."""
        lines = [f"{name}: {why or 'ok'}" for name, why in self.failures.items()]
        return "\n".join(["ok" if self.good else "failing", *lines]) + "\n"


class Health:
    """`alive`: the process can do its work; otherwise it should be restarted or repaired.

    `ready`: the process does its work with all its dependencies; this includes `alive`. Until `begin` is called, the
    process is alive and not ready.
    """

    def __init__(self) -> None:
        self._alive: Mapping[str, Check] = {}
        self._ready: Mapping[str, Check] = {"start": lambda: "the process is starting"}

    def begin(self, alive: Mapping[str, Check], ready: Mapping[str, Check]) -> None:
        """Sets the checks. They run on the event loop and must return at once."""
        self._alive, self._ready = alive, ready

    def alive(self) -> Report:
        return Report({name: check() for name, check in self._alive.items()})

    def ready(self) -> Report:
        return Report({name: check() for name, check in {**self._alive, **self._ready}.items()})


_VARIABLE = "NOTIFY_SOCKET"


class Notifier:
    """Sends nothing unless systemd started this process with `Type=notify`."""

    def __init__(self) -> None:
        path = os.environ.pop(_VARIABLE, "")  # not for processes that this one starts
        self._path = f"\0{path[1:]}" if path.startswith("@") else path
        self._sent = ""

    def report(self, ready: Report) -> None:
        """Reports the health to systemd. The first call also reports the start of the unit."""
        failing = [f"{name}: {why}" for name, why in ready.failures.items() if why]
        message = f"STATUS=not ready: {'; '.join(failing)}" if failing else "STATUS=ready"
        message = message.replace("\n", " ")
        if self._path and message != self._sent:
            self._send(message if self._sent else f"READY=1\n{message}")
            self._sent = message

    def _send(self, message: str) -> None:
        # An error is no reason to stop: systemd may be restarting.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(message.encode(), self._path)

"""The health of a daemon: named checks. gRPC health, HTTP and metrics report them alike."""

from __future__ import annotations

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

"""Managers of a local cluster that end by themselves are started again, and a killed one only by `restart`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from rhino.testing.managers import Managers
from rhino.testing.process import Process


@dataclass
class Started:
    index: int
    running: bool = True

    def lines(self) -> list[str]:
        return ['{"service": "manager"}']

    def kill(self) -> None:
        self.running = False


def test_a_manager_that_has_ended_starts_again_on_its_address() -> None:
    started: list[tuple[Started, str]] = []

    def start(index: int, listen: str, bootstrap: bool) -> Process:
        started.append((Started(index), listen))
        return cast("Process", started[-1][0])

    managers = Managers("127.0.0.1", 2, start)
    managers.begin()
    managers.kill()
    managers.revive()
    assert len(started) == 2, "the killed one stays away until it is restarted"
    started[1][0].running = False
    managers.revive()
    assert [(one.index, listen) for one, listen in started[2:]] == [(1, started[1][1])]
    managers.restart()
    assert [one.index for one, _ in started[3:]] == [0]

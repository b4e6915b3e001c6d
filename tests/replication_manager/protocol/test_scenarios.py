"""Scenarios as data: what happens to a group of one job, line by line (scenarios/*.txt).

A line is a command and, after `->`, the chain afterwards: the owner first, "?" after a member that is not whole, and
`needs N` for the copies of a commit. After `!!` stands a part of the refusal. Commands: `workers NAMES`, `resolve
WORKER [alone]` (a task there asks for the group; `alone`: without replicas), `whole WORKER [BYTES]`, `holds WORKER
BYTES`, `lose`, `stop`, `back WORKER [BYTES]`, `wait SECONDS`, `drain`, `undrain`, `owner`, `add`, `forget`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.errors import RhinoError
from rhino_core.ids import NO_EPOCH, JobSettings
from tests.replication_manager.protocol.harness import GROUP, Manager

FOLDER = Path(__file__).parent / "scenarios"


def scenarios() -> Iterator[ParameterSet]:
    for path in sorted(FOLDER.glob("*.txt")):
        for block in path.read_text().strip().split("\n\n"):
            title, *lines = block.splitlines()
            assert title.startswith("# "), title
            yield pytest.param(lines, id=f"{path.stem}: {title[2:]}")


class Scene:
    def __init__(self) -> None:
        self.manager = Manager()
        self.starts = 0

    def play(self, command: str, subject: str, more: str) -> None:
        manager = self.manager
        match command:
            case "workers":
                for name in subject:
                    manager.register(name)
            case "resolve":
                manager.resolve(subject, settings=JobSettings(0) if more == "alone" else None)
            case "whole":
                manager.beat(subject, Report(GROUP, manager.group().epoch, True, int(more or 10)))
            case "holds":
                manager.beat(subject, self.stored(more))
            case "lose":
                manager.lose(subject)
            case "stop":
                for event in (ev.Leaving, ev.StreamBroken, ev.Refused):
                    manager.do(event(subject, self.process(subject)))
            case "back":
                self.starts += 1
                manager.register(subject, *([self.stored(more)] if more else []), process=f"again-{self.starts}")
            case "wait":
                for _ in range(int(subject)):
                    manager.now += 1.0
                    manager.beat_all()
                    manager.do(ev.Tick())
            case "drain" | "undrain":
                manager.do(ev.DrainSet(subject, command == "drain"))
            case "owner":
                manager.do(ev.Change(GROUP, "", subject))
            case "add":
                manager.do(ev.Change(GROUP, subject, ""))
            case "forget":
                manager.do(ev.WorkerForgotten(subject))
            case _:
                raise AssertionError(f"unknown command {command!r}")

    def stored(self, size: str) -> Report:
        return Report(GROUP, NO_EPOCH, False, int(size))

    def process(self, name: str) -> str:
        return self.manager.machine.membership.records[name].process_id


@pytest.mark.parametrize("lines", [*scenarios()])
def test_a_scenario(lines: list[str]) -> None:
    scene = Scene()
    for line in lines:
        command, _, refusal = line.partition("!!")
        command, _, expected = command.partition("->")
        words = [*command.split(), ""]
        if refusal:
            with pytest.raises(RhinoError, match=re.escape(refusal.strip())):
                scene.play(*words[:3])
            continue
        scene.play(*words[:3])
        chain, _, needs = expected.strip().partition(" needs ")
        if chain:
            assert scene.manager.members() == chain, line
        if needs:
            assert scene.manager.group().required_copies == int(needs), line

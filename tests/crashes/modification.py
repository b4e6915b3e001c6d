"""One case: a function of the running query is replaced, and a process is killed at a point of that."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType

from query_evolution import Canary, Modifications, StaticTable, jar_function
from query_evolution.modify.ledger import State, View
from rhino_core import failpoints
from tests.chaos import queries
from tests.crashes import evidence
from tests.crashes.puppeteer import Act
from tests.crashes.stage import Stage
from tests.jvm_functions import SCORE, build, jar_of

NAME, JARRED = "modified", "jarred"
POINT = "scored"
BY_COMMAND = ("modification.jar.", "modification.record.", "modification.withdraw.")  # tests/query_evolution/modify
POINTS = [n for n in failpoints.NAMES if n.startswith("modification.") and not n.startswith(BY_COMMAND)]
VICTIMS = ("driver", "manager", "worker")
TIMEOUT_S = 240.0
BATCHES_AFTER = 2
WORKER = 0
SHOWN, SHOWN_LINES = 5, 40  # of the ledger and of the driver's log, in the message of a failure
ADDED = 1000  # by a join or an inserted function, for each key, times the number of its modification
# What the functions make of `v`.
VALUES = {"plus": "v + 1", "triple": "v * 3", "minus": "-v", SCORE: "v * 3 + 1", "com.acme.Minus": "-v"}
LENIENT = Canary(1, max_batch_ms=600_000, min_rows=1, point=POINT)
STRICT = Canary(2, max_rows=1, point=POINT)


@dataclass(frozen=True, slots=True)
class Case:
    """`change`: kept, fails (its first batch), breaks (a limit of its canary), refused; joined: a table, kept.

    inserted: a function at a point, kept. jar: a function of Java, kept.
    """

    point: str
    change: str

    @property
    def expected(self) -> State:
        ends = {"refused": State.REFUSED, "fails": State.RETURNED, "breaks": State.RETURNED}
        return ends.get(self.change, State.IN_FORCE)

    def __str__(self) -> str:
        return f"{self.point.removeprefix('modification.')}-{self.change}"


def cases() -> list[Case]:
    """Every point, with each change that comes there."""
    changes = {"table": ["joined"], "refuse": ["refused"], "return": ["fails", "breaks"]}
    changes |= {step: ["kept", "joined", "inserted"] for step in ("accept", "bind", "plan")}
    return [Case(point, change) for point in POINTS for change in changes.get(point.split(".")[1], ["kept"])]


def jar_cases() -> list[Case]:
    """Those of the query with a function of Java."""
    return [Case(point, "jar") for point in POINTS if point.split(".")[1] in ("accept", "bind", "plan")]


class Modified(Stage):
    """The query of the cases. Versions follow from the ledger, and what they compute from this class."""

    def __init__(self, folder: Path, *, name: str = NAME) -> None:
        super().__init__(folder, name=name, driver_points=POINTS)
        self.checkpoint = folder / name / "checkpoint"
        self.used: dict[int, str] = {}  # by number of a modification, the function that it brought
        self.table = folder / "table.json"
        self.added: dict[int, int] = {}  # by number of a modification, the factor of its table
        self.inserted: dict[int, int] = {}  # the same for the factor of the function that it inserted
        self.present = "plus"

    def change(self, case: Case) -> View:
        """Asks for it."""
        changes, name = Modifications(self.checkpoint), case.change
        if name == "joined":
            return self._join(changes)
        if name == "inserted":
            return self._insert(changes)
        if name in ("kept", "breaks"):
            name = "triple" if self.present == "minus" else "minus"
        canary = {"kept": LENIENT, "breaks": STRICT}.get(case.change)
        view = changes.replace_function("score", versions()[name], canary=canary)
        self.used[view.record.number] = name
        if case.change == "kept":
            self.present = name
        return view

    def _join(self, changes: Modifications) -> View:
        factor = ADDED * (1 + max((view.record.number for view in changes.list()), default=0))
        rows = [json.dumps({"id": key, "added": key * factor}) for key in range(queries.KEYS)]
        self.table.write_text("\n".join(rows))
        its = StaticTable(str(self.table), "json", "id bigint, added bigint")
        columns = {"value": "value + coalesce(table.added, 0)"}
        view = changes.set_join(POINT, its, {"k": "id"}, how="inner", columns=columns, canary=LENIENT)
        self.added[view.record.number] = factor
        return view

    def _insert(self, changes: Modifications) -> View:
        factor = ADDED * (1 + max((view.record.number for view in changes.list()), default=0))
        more = F.udf(lambda value, key: value + key * factor, LongType())
        view = changes.set_columns(POINT, {"value": "more(value, k)"}, functions={"more": more}, canary=LENIENT)
        self.inserted[view.record.number] = factor
        return view

    def picture(self) -> str:
        """What the ledger says, too: in which state each of the last modifications is, and what its batches showed."""
        views = Modifications(self.checkpoint).list()[-SHOWN:]
        said = [
            f"modification {v.record.number} {v.state}: {v.first_batch} to {v.last_batch}, {v.reason!r}, "
            f"canary {v.record.canary}, figures {dict(v.figures)}"
            for v in views
        ]
        log = (self.folder / "spark-driver.log").read_text(errors="replace").splitlines()
        told = [line[:300] for line in log if "odification" in line or line.startswith("failpoint ")][-SHOWN_LINES:]
        return "\n".join([super().picture(), *said, "the driver's log:", *told])

    def value(self, views: Sequence[View]) -> str:
        """The SQL of what each batch adds up, over `v`, `k` and the batch `b`. The newest modification comes first."""
        counted = [view for view in reversed(views) if view.first_batch is not None and self._brings(view)]
        functions = [view for view in counted if view.record.number in self.used]
        whens = [f"when {_within(view)} then {VALUES[self.used[view.record.number]]}" for view in functions]
        value = f"case {' '.join(whens)} else v + 1 end" if whens else "v + 1"
        for factors in (self.added, self.inserted):
            its = [(view, factors[view.record.number]) for view in counted if view.record.number in factors]
            adds = [f"when {_within(view)} then k * {factor}" for view, factor in its]
            value += f" + case {' '.join(adds)} else 0 end" if adds else ""
        return value

    def _brings(self, view: View) -> bool:
        return view.last_batch is None or view.last_batch >= (view.first_batch or 0)


class Jarred(Modified):
    """The same with a function of Java."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, name=JARRED)
        self._classes = build(folder)
        jar_of(self._classes, folder / "present.jar", factor=1)

    def change(self, case: Case) -> View:
        changes = Modifications(self.checkpoint)
        name = SCORE if self.present == "com.acme.Minus" else "com.acme.Minus"
        jar = jar_of(self._classes, self.folder / "new.jar", factor=3)
        view = changes.replace_function("score", jar_function(jar, name), canary=LENIENT)
        jar.unlink()  # the copy counts
        self.used[view.record.number], self.present = name, name
        return view


def versions() -> dict[str, Any]:
    """Pickled with their code, because they are no functions of a module."""

    def fails(value: int) -> int:
        raise ValueError(f"no score for {value}")

    return {
        "plus": F.udf(lambda value: value + 1, LongType()),
        "triple": F.udf(lambda value: value * 3, LongType()),
        "minus": F.udf(lambda value: -value, LongType()),
        "fails": F.udf(fails, LongType()),
        "refused": F.udf(lambda value: 1, IntegerType()),
    }


def play(stage: Modified, case: Case, victim: str) -> str:
    """Returns a line about the outcome. AssertionError: wrong output or state, or the cluster does not come to rest."""
    stage.wait_until_quiet()
    started, changes = time.monotonic(), Modifications(stage.checkpoint)
    stage.puppeteer.play(_script(case, lambda: _kill(stage, case, victim)))
    number = stage.change(case).record.number
    stage.wait(lambda: _reached(stage, case, changes.get(number)), f"{case} is reached", TIMEOUT_S)
    if victim == "driver":
        stage.start_driver()
    elif victim == "manager":
        stage.cluster.restart_manager()
    stage.wait(lambda: changes.get(number).state.ended, f"modification {number} ends", TIMEOUT_S)
    if victim == "worker":
        stage.cluster.restart_worker(WORKER)
    goal = stage.logged() + BATCHES_AFTER
    stage.wait(lambda: stage.logged() >= goal, "batches after the modification", TIMEOUT_S)
    stage.wait_until_quiet()
    last, views = stage.logged(), changes.list()
    found = evidence.output(stage.folder, stage.checked, last, name=stage.name, value=stage.value(views))
    view = changes.get(number)
    said = f"{case!s:16} {victim:8} {view.state} {view.first_batch} to {view.last_batch}, of {last} batches"
    assert found.equal, f"{said}: {found}"
    assert view.state is case.expected, f"{said}: {view.reason}"
    stage.checked = last
    return f"{said}, {time.monotonic() - started:.1f} s"


def _reached(stage: Modified, case: Case, view: View) -> bool:
    refused = view.state is State.REFUSED and case.expected is not State.REFUSED
    assert not refused, f"{case}: modification {view.record.number} is refused: {view.reason}"
    return stage.puppeteer.played()


def _script(case: Case, kill: Act) -> list[tuple[str, Act]]:
    """Plans are changed in every batch: the one after a new binding is meant."""
    bound = [("modification.bind.after", lambda: None)] if case.point.startswith("modification.plan.") else []
    return [*bound, (case.point, kill)]


def _kill(stage: Modified, case: Case, victim: str) -> None:
    if case.change == "joined" and case.point != "modification.table.before":
        stage.table.unlink()  # the copy counts
    match victim:
        case "driver":
            stage.kill_driver()
        case "manager":
            stage.cluster.kill_manager()
        case _:
            stage.cluster.kill_worker(WORKER)


def _within(view: View) -> str:
    return f"b >= {view.first_batch}" + ("" if view.last_batch is None else f" and b <= {view.last_batch}")

"""One case: a handover to a worker that holds nothing of what moves, and a kill at one of its points."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from rhino import Handover, HandoverClient, Kind, Phase, Strategy
from rhino.client.overview import VirtualNodeView
from rhino_core.errors import RhinoError
from rhino_model.handovers import Step
from tests.crashes import evidence
from tests.crashes.cancellation import Cancellation
from tests.crashes.puppeteer import Act
from tests.crashes.stage import NAME, POINTS, Stage

VICTIMS = ("manager", "driver", "origin", "target", "origin's sidecar", "target's sidecar")
DEADLINE_S = 240.0  # of the handover: a driver starts within it on a busy machine
REACH_TIMEOUT_S = 60.0
ORDER = ("intent", "join", "marker", "push", "writers", "confirm", "owner", "settled")
AFTER = {"push": "marker", "writers": "marker", "owner": "confirm"}  # points that are hit at other times as well
BATCHES_AFTER = 2
FLUID = Strategy(Kind.FLUID)
_turn = itertools.count()


@dataclass(frozen=True, slots=True)
class Setting:
    """The moves, one virtual node in each step, and the progress of the query. `origin`: that of the last move."""

    job: str
    virtual_nodes: tuple[str, ...]
    origin: str
    target: str
    first: int  # batch


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of the handover. `recorded`: None when the manager has no record of it."""

    point: str
    victim: str
    setting: Setting
    recorded: Handover | None
    writers: dict[str, dict[int, str]]  # of each virtual node, by logged batch
    last: int  # batches that were logged when all was quiet again
    seconds: float

    @property
    def phases(self) -> tuple[Phase | None, ...]:
        """The phase of each step."""
        return tuple(step.phase for step in self.recorded.steps) if self.recorded else (None,)

    def __str__(self) -> str:
        phases = ", ".join(phase.value if phase else "no record" for phase in self.phases)
        what = f"{', '.join(self.setting.virtual_nodes)} to {self.setting.target}"
        reason = f"  ({self.recorded.reason})" if self.recorded and self.recorded.reason else ""
        batches = f"batches {self.setting.first} to {self.last - 1} right"
        return f"{self.point:24} {self.victim:17} {what:20} {phases:11} {batches}, {self.seconds:5.1f} s{reason}"


def play(stage: Stage, point: str, victim: str, steps: int = 1) -> Outcome:
    """`steps`: the kill is in the last of them. AssertionError: wrong output, or the cluster does not come to rest."""
    assert point in POINTS
    stage.wait_until_quiet()
    started = time.monotonic()
    setting = _choose(stage, steps)
    with HandoverClient(stage.cluster.manager) as client, ThreadPoolExecutor(2) as pool:
        known = {h.handover_id for h in client.list()}
        begun = Future[Handover]()
        target = stage.cluster.workers[_index("target", setting)]
        cancellation = Cancellation(client, begun, target, pool)

        def kill() -> None:
            cancellation.let_target_go_on()
            _kill(stage, victim, setting)

        stage.puppeteer.play(_script(point, steps, kill, cancellation.send))
        pool.submit(_start, client, setting, begun)
        try:
            stage.wait(lambda: _reached(stage, cancellation), f"{point} is reached", REACH_TIMEOUT_S)
        finally:
            cancellation.let_target_go_on()
        _bring_back_at_once(stage, victim, setting)
        refused = begun.exception()
        assert refused is None or victim == "manager", refused
        _wait_for_end(stage, client, known)
        if victim in ("origin", "target"):
            stage.cluster.restart_worker(_index(victim, setting))
        goal = stage.logged() + BATCHES_AFTER
        stage.wait(lambda: stage.logged() >= goal, "batches after the handover")
        stage.wait_until_quiet()
        recorded = next((h for h in client.list() if h.handover_id not in known), None)
    return _judged(stage, point, victim, setting, recorded, started)


def expected(point: str, victim: str) -> tuple[Phase | None, ...]:
    """The phases that may be recorded."""
    step, when = point.split(".")[1:]
    if step == "end":  # cancelled while it prepares
        return (Phase.ROLLED_BACK if (victim, when) == ("manager", "before") else Phase.CANCELLED,)
    at = ORDER.index(step)
    marker, confirm = ORDER.index("marker"), ORDER.index("confirm")
    if victim == "manager" and (at < marker or point == "handover.marker.before"):
        return (None if point == "handover.intent.before" else Phase.ROLLED_BACK,)
    if victim in ("manager", "driver", "origin", "origin's sidecar") or at >= confirm:
        return (Phase.CONFIRMED,)
    lost = Phase.ROLLED_BACK if at < marker else Phase.REDIRECTED  # the write at the marker goes on
    sure = victim == "target" and step != "writers"
    return (lost,) if sure else (lost, Phase.CONFIRMED)


def check(outcome: Outcome) -> None:
    """The record against who wrote the logged batches, step by step. Those before the last were confirmed."""
    assert set(outcome.phases[:-1]) <= {Phase.CONFIRMED}, str(outcome)
    assert outcome.phases[-1] in expected(outcome.point, outcome.victim), str(outcome)
    for number, node in enumerate(outcome.setting.virtual_nodes):
        _check_step(outcome, outcome.recorded.steps[number] if outcome.recorded else None, outcome.writers[node])


def _check_step(outcome: Outcome, recorded: Step | None, writers: dict[int, str]) -> None:
    target = outcome.setting.target
    assert all(writers.values()), f"nobody says who wrote {writers}"
    if recorded is not None and recorded.phase is Phase.CONFIRMED:
        assert writers[recorded.confirmed_batch_id] == target, str(outcome)
        return
    assert writers[outcome.last - 1] != target, str(outcome)
    if outcome.victim == "manager":  # nobody who runs tasks was touched
        assert target not in writers.values(), str(outcome)


# ---- parts


def _choose(stage: Stage, steps: int) -> Setting:
    """The last virtual node goes to the worker that holds nothing of it, others before it to the same."""
    overview, job = stage.overview(), stage.job()
    assert job is not None
    turn = next(_turn) % len(job.virtual_nodes)
    for last in (*job.virtual_nodes[turn:], *job.virtual_nodes[:turn]):
        group = next(g for g in overview.groups if g.group.job == job.job and g.group.partition == _partition(last))
        (target,) = {w.worker_id for w in overview.workers} - {m.worker_id for m in group.members}
        others = [n.virtual_node for n in job.virtual_nodes if n != last and n.desired_worker != target]
        if len(others) >= steps - 1:
            nodes = (*others[: steps - 1], last.virtual_node)
            return Setting(job.job, nodes, last.desired_worker, target, stage.logged())
    raise AssertionError(f"of no virtual node of {job.job} there are {steps - 1} others elsewhere than at its target")


def _partition(node: VirtualNodeView | str) -> int:
    name = node if isinstance(node, str) else node.virtual_node
    return int(name.split("/")[1])


def _start(client: HandoverClient, setting: Setting, begun: Future[Handover]) -> None:
    try:
        begun.set_result(
            client.start(NAME, setting.virtual_nodes, setting.target, strategy=FLUID, deadline_s=DEADLINE_S)
        )
    except RhinoError as error:
        begun.set_exception(error)


def _reached(stage: Stage, cancellation: Cancellation) -> bool:
    error = cancellation.error()
    if stage.puppeteer.played():  # a cancellation may fail after the kill
        return True
    assert error is None, f"the cancellation: {error}"
    return False


def _script(point: str, steps: int, kill: Act, cancel: Act) -> list[tuple[str, Act]]:
    """Up to the point in the last of `steps`."""
    step = point.split(".")[1]
    if step == "end":
        return [("handover.join.before", cancel), (point, kill)]
    before = [f"handover.{AFTER[step]}.after"] * steps if step in AFTER else [point] * (steps - 1)
    return [*((name, lambda: None) for name in before), (point, kill)]


def _index(victim: str, setting: Setting) -> int:
    worker = setting.origin if victim.startswith("origin") else setting.target
    return int(worker.removeprefix("worker-"))


def _kill(stage: Stage, victim: str, setting: Setting) -> None:
    cluster = stage.cluster
    match victim:
        case "manager":
            cluster.kill_manager()
        case "driver":
            stage.kill_driver()
        case "origin" | "target":
            cluster.kill_worker(_index(victim, setting))
        case _:
            cluster.kill_sidecar(_index(victim, setting))


def _bring_back_at_once(stage: Stage, victim: str, setting: Setting) -> None:
    """Workers stay away until the handover has ended."""
    if victim == "manager":
        stage.cluster.restart_manager()
    elif victim == "driver":
        stage.start_driver()
    elif victim.endswith("sidecar"):
        stage.cluster.restart_sidecar(_index(victim, setting))


def _wait_for_end(stage: Stage, client: HandoverClient, known: set[str]) -> None:
    ended = lambda: all(h.phase.ended for h in client.list() if h.handover_id not in known)  # noqa: E731
    stage.wait(ended, "the end of the handover", DEADLINE_S + 30)


def _judged(
    stage: Stage, point: str, victim: str, setting: Setting, recorded: Handover | None, started: float
) -> Outcome:
    last, overview = stage.logged(), stage.overview()
    found = evidence.output(stage.folder, stage.checked, last)
    assert found.equal, f"{point}, {victim}: batches {stage.checked} to {last - 1}: {found}"
    stage.checked = last
    writers = {
        node: {
            batch: evidence.writer(stage.folder, overview, setting.job, _partition(node), batch)
            for batch in range(setting.first, last)
        }
        for node in setting.virtual_nodes
    }
    took = time.monotonic() - started
    return Outcome(point, victim, setting, recorded, writers, last, took)

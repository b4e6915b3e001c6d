"""Answers of imagined managers, small and large."""

from __future__ import annotations

import dataclasses

from rhino.client.overview import GroupView, MemberView, Overview, VirtualNodeView
from rhino.page.model import Answers
from rhino_core.ids import Epoch, GroupId, JobSettings, VirtualNode
from rhino_model.archives import Archive, ArchivedQuery, DrillCounts
from rhino_model.decisions import DecidedMove, Decision, Decisions, Outcome
from rhino_model.handovers import (
    Action,
    DrainView,
    Handover,
    Measured,
    Move,
    MoveKind,
    Phase,
    Plan,
    PlannedStep,
    Prediction,
    Step,
)
from rhino_model.loads import BatchLoad, SourceLag, VirtualNodeLoad
from tests.rhino.client.views import JOB, job, worker

AT_MS = 1_900_000_000_000
SETTINGS = JobSettings()
BAD_NAME = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"


def handover(name: str, phase: Phase, *, moves: int = 2, by: str = "rhino://c/operator/alice") -> Handover:
    ended = phase.ended
    steps = tuple(
        PlannedStep((Move(VirtualNode(JOB, 0, n), (0,), "a", "b", MoveKind.DIRECT, 1000, 2000, "least loaded"),))
        for n in range(moves)
    )
    plan = Plan(steps, intent="rebalance by bytes", prediction=Prediction(0.5, 4.0, basis="3 handovers"))
    done = Step(phase, "", {JOB: 1}, AT_MS, AT_MS if ended else 0, 7 if ended else -1, 1000, 0.4 if ended else None)
    measured = Measured(5.0, 0.4, 0.2) if phase is Phase.CONFIRMED else None
    waiting = () if ended else ("0/0",)
    times = (AT_MS - 9000, 0, AT_MS - 4000 if ended else 0)
    return Handover(name, phase, plan, "", 1, *times, -1, 1000, waiting, (done,) * moves, measured, by)


def small() -> Answers:
    """Four workers in two zones: one lost, one draining. Two queries; one has a name with markup."""
    workers = [worker("a"), worker("b"), worker("c", "lost"), worker("d", draining=True)]
    workers = [dataclasses.replace(one, zone="z1" if one.worker_id < "c" else "z2") for one in workers]

    def group(partition: int, *members: tuple[str, str, bool, int], lag: int = 0, of: str = JOB) -> GroupView:
        views = tuple(MemberView(name, state, whole, version, 100 + version) for name, state, whole, version in members)
        return GroupView(GroupId(of, 0, partition), Epoch(1, 1), 2, 2, lag, views, SETTINGS)

    groups = (
        group(0, ("a", "live", True, 9), ("b", "live", True, 7), lag=2),
        group(1, ("b", "live", True, 9), ("c", "lost", True, 3), lag=6),
        group(2, ("c", "lost", True, 9), ("d", "live", False, 1), lag=8),
        group(0, ("d", "live", True, 5), ("a", "live", False, 4), lag=1, of="other"),
    )
    nodes = (
        VirtualNodeView("0/0", "a", "a", 0, ("a", "b"), 10, 0.5),
        VirtualNodeView("0/1", "b", "a", 3, ("b",), 20, 0.25),
        VirtualNodeView("0/2", "d", "", 0, (), 30, None),
    )
    lags = (SourceLag("topic", "offsets", 120.0, 60.0),)
    counts = dataclasses.replace(
        job(*nodes, missed=1), lags=lags, batch_ago_s=3.0, batch_interval_s=1.0, executors=2, workers_wanted=3
    )
    other = dataclasses.replace(
        job(VirtualNodeView("0/0", "d", "d", 0, ("d",), None, None), name=BAD_NAME, job_id="other"), connected=False
    )
    archive = Archive(
        "s3://bucket/rhino",
        "c1",
        (ArchivedQuery(JOB, "counts", 5, AT_MS, AT_MS, 7, False, 12.5, True, ""),),
        10.0,
        "newest=3",
        "",
        DrillCounts(300.0, 4, 1, 0, 2, 100.0),
    )
    drain = DrainView("d", True, ("2 groups lack copies",), 1, 2, "h2", 0, 90.0)
    decisions = (
        Decision(1, AT_MS - 9000, JOB, Outcome.BALANCED, "even", 1.05, 1.1, times=3, finished_ms=AT_MS - 7000),
        Decision(
            2,
            AT_MS - 6000,
            JOB,
            Outcome.MOVING,
            "uneven",
            2.0,
            1.9,
            1.2,
            30.0,
            3.0,
            1000,
            (DecidedMove("0/1", "a", "b"),),
            (),
            "h1",
            AT_MS - 6000,
        ),
    )
    actions = (
        Action(
            AT_MS - 9000, "rhino://c/operator/alice", "handover", JOB, "counts", "", "h1", "", "confirmed", "", None
        ),
        Action(AT_MS - 1000, "", "drain", "", "", "d", "", "leaves", "done", "", None),
    )
    overview = Overview(
        1,
        tuple(workers),
        groups,
        (counts, other),
        (handover("h2", Phase.PREPARING),),
        "0.1.0",
        False,
        ("a note",),
        (drain,),
        archive,
    )
    handovers = (handover("h1", Phase.CONFIRMED), handover("h2", Phase.PREPARING))
    return Answers(overview, handovers, Decisions("act", decisions), actions, AT_MS, 0.02)


def large(workers: int = 1000, nodes: int = 100_000, queries: int = 20, zones: int = 4) -> Answers:
    """Every virtual node has two copies; one worker is lost, and the load is uneven."""
    names = [f"worker-{n:04d}.rack-{n % 40:02d}" for n in range(workers)]
    seen = tuple(
        dataclasses.replace(
            worker(name, "lost" if n == 7 else "live", host=f"10.0.{n // 250}.{n % 250}"),
            zone=f"zone-{n % zones}",
            stored_bytes=10**9 + n * 10**7,
            free_bytes=10**11,
        )
        for n, name in enumerate(names)
    )
    each = nodes // queries
    jobs, groups = [], []
    for query in range(queries):
        its = []
        for partition in range(each):
            at = (query * each + partition) * 7 % workers
            copies = names[at], names[(at + 13) % workers]
            its.append(VirtualNodeView(f"0/{partition}", copies[0], copies[0], 0, copies, 1000, 0.01 * (1 + at % 9)))
            members = tuple(MemberView(one, "lost" if one == names[7] else "live", True, 40, 10**6) for one in copies)
            groups.append(GroupView(GroupId(f"job-{query}", 0, partition), Epoch(1, 1), 2, 2, 0, members, SETTINGS))
        jobs.append(
            dataclasses.replace(job(*its, name=f"query-{query}", job_id=f"job-{query}"), batch_ago_s=1.0, executors=40)
        )
    overview = Overview(1, seen, tuple(groups), tuple(jobs), rhino_version="0.1.0")
    return Answers(overview, (), Decisions("off", ()), (), AT_MS, 0.0)


def load(number: int, *, job_id: str = JOB, run_id: str = "run-1", batch_s: float = 0.5) -> BatchLoad:
    nodes = (VirtualNodeLoad("0/0", "a", batch_s, 10), VirtualNodeLoad("0/1", "b", 0.1, 10))
    lags = (SourceLag("topic", "offsets", 100.0 * number), SourceLag("other", "offsets", 1.0))
    return BatchLoad(job_id, "counts", run_id, number, 1, 500, batch_s, 2.0, nodes, 2, 0, lags)

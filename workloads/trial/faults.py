"""Faults during a run: a restart of the query, a killed executor, a handover."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rhino import HandoverClient, Phase
from rhino.client.overview import JobView, fetch_overview
from rhino.testing import LocalCluster
from rhino.testing.choices import handover_choice
from rhino.testing.query_watch import RunError
from workloads.trial.running import Running
from workloads.trial.timeline import Fault

HANDOVER_DEADLINE_S = 60.0


def restart(running: Running) -> str:
    """Stops the query immediately and starts it again from its checkpoint."""
    running.stop()
    running.start()
    return "query stopped and started again"


def kill(running: Running) -> str:
    """kill -9 of an executor. If the manager knows the virtual nodes, of the worker with the most of them."""
    cluster = _cluster(running)
    view = _view(cluster, running.job.name)
    nodes = [n.actual_worker for n in view.virtual_nodes] if view else []
    known = [w.worker_id for w in cluster.workers]
    index = max(range(len(known)), key=lambda i: nodes.count(known[i]))
    cluster.kill_executor(index)
    return f"kill -9 of the executor of {known[index]}"


def handover(running: Running) -> str:
    """Hands half of the virtual nodes of the most loaded worker over to the worker with most replicas of them."""
    if not running.job.stateful:
        return "no handover: the query has no state"
    cluster = _cluster(running)
    settled: list[JobView] = []
    deadline = time.monotonic() + HANDOVER_DEADLINE_S

    def all_placed() -> bool:
        view = _view(cluster, running.job.name)
        nodes = view.virtual_nodes if view else ()
        if view and nodes and all(n.desired_worker and n.holders for n in nodes):
            settled.append(view)
        elif time.monotonic() > deadline:
            unplaced = [n.virtual_node for n in nodes if not (n.desired_worker and n.holders)]
            raise RunError(
                f"no handover of {running.job.name}: after {HANDOVER_DEADLINE_S:g} s the manager still has no worker "
                f"for {', '.join(unplaced) or 'any virtual node'}"
            )
        return bool(settled)

    running.watch.wait_for(all_placed)
    choice = handover_choice(settled[0])
    with HandoverClient(cluster.manager) as client, ThreadPoolExecutor(1) as pool:
        begun = client.start(settled[0].job, choice.virtual_nodes, choice.target, deadline_s=HANDOVER_DEADLINE_S)
        ended = pool.submit(client.wait, begun.handover_id, timeout_s=HANDOVER_DEADLINE_S + 10)
        running.watch.wait_for(ended.done)
        result = ended.result()
    if result.phase is not Phase.CONFIRMED:
        raise RunError(f"the handover of {running.job.name} ended {result.phase.value}: {result.reason}")
    return f"handover of {', '.join(choice.virtual_nodes)} from {choice.origin} to {choice.target}"


FAULTS: dict[str, Callable[[Running], str]] = {"restart": restart, "kill": kill, "handover": handover}


def carry_out(kind: str, running: Running) -> Fault:
    """Causes the fault and waits until the next batch is committed. Raises RunError if that fails."""
    started_ms = time.time_ns() // 1_000_000
    what = FAULTS[kind](running)
    running.watch.wait_for_batch(running.watch.committed() + 1)
    return Fault(kind, what, started_ms, time.time_ns() // 1_000_000)


def _cluster(running: Running) -> LocalCluster:
    cluster = running.place.cluster
    if cluster is None:
        raise RunError("only a cluster (--cluster) has executors to kill and workers to hand over to")
    return cluster


def _view(cluster: LocalCluster, name: str) -> JobView | None:
    if not cluster.manager:
        return None
    return next((j for j in fetch_overview(cluster.manager).jobs if j.name == name and j.connected), None)

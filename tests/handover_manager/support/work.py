"""Parts of the tests of work that other tests use as well."""

from __future__ import annotations

from collections.abc import Mapping

from handover_manager import events as ev
from handover_manager.plan.work import Work
from handover_manager.view import TaskGroup
from rhino_core.ids import StoreId, StoreVersion, Version
from workloads.adaptation.scene import JOB, RUN, Cluster, Play, group, node


def running(*chains: str, workers: str = "w1 w2") -> Play:
    cluster = Cluster(*workers.split())
    for partition, chain in enumerate(chains):
        cluster.chain(group(0, partition), chain)
    play = Play(cluster)
    play.see()
    play.begin(TaskGroup(0, (0,), len(chains)))
    return play


def report(play: Play, batch: int, work: Mapping[str, Work], run_id: str = RUN) -> None:
    version = StoreVersion(StoreId(JOB, 0, 0, "default"), Version(batch + 1, f"id-{batch}"))
    reported = {node(name): figures for name, figures in work.items()}
    play(ev.BatchLogged(play.session(), JOB, run_id, batch, (version,), reported))

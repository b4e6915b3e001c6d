"""What the metrics of the managers say of groups, jobs and handovers."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from handover_manager import events as ev
from handover_manager.machine import SETTLE_S
from handover_manager.service import metrics
from handover_manager.service.metrics import HandoverMetrics
from handover_manager.view import TaskGroup
from rhino_model.archives import Archive, ArchivedQuery, DrillCounts
from rhino_model.handovers import Phase
from workloads.adaptation.scene import JOB, Cluster, Play, group


class Scene:
    def __init__(self) -> None:
        self.cluster = Cluster("w1", "w2", "w3")
        for partition in (0, 1):
            self.cluster.chain(group(0, partition), "w1 w2")
        self.play = Play(self.cluster)
        self.play.begin(TaskGroup(0, (0,), 2))
        self.play.see()
        self.registry = CollectorRegistry()
        self.metrics = HandoverMetrics(self.play.core, self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def test_a_virtual_node_without_all_its_copies_is_under_replicated() -> None:
    scene = Scene()
    assert scene.value("rhino_under_replicated_virtual_nodes") == 0
    scene.cluster.lose("w2")
    scene.play.see()
    assert scene.value("rhino_under_replicated_virtual_nodes") == 2


def test_misses_never_fall_when_a_job_is_forgotten() -> None:
    scene = Scene()
    (job,) = scene.play.core.jobs.all()
    node = next(iter(job.map.nodes))
    job.logged.misses[node] = 3
    assert scene.value("rhino_locality_misses_total") == 3
    scene.play(ev.JobForgotten(job.job))
    assert scene.value("rhino_locality_misses_total") == 3


def test_a_handover_counts_once_with_its_phases() -> None:
    scene = Scene()
    scene.play.start("w2", "0/0")
    (handover,) = scene.play.core.handovers.all()
    scene.metrics.announced(handover)
    assert scene.value("rhino_handovers_total", outcome="rolled_back") == 0
    scene.play.now += 10_000
    scene.play.see()
    assert handover.phase is Phase.ROLLED_BACK
    scene.metrics.announced(handover)
    scene.metrics.announced(handover)
    assert scene.value("rhino_handovers_total", outcome="rolled_back") == 1
    assert handover.finished_ms is not None
    whole_s = (handover.finished_ms - handover.started_ms) / 1000
    sums = [
        scene.value("rhino_handover_duration_seconds_sum", phase=phase, outcome="rolled_back") or 0.0
        for phase in ("prepare", "confirm")
    ]
    assert sum(sums) == pytest.approx(whole_s)
    assert whole_s > 300


def test_ended_handovers_are_forgotten_with_the_core() -> None:
    scene = Scene()
    for handover_id in ("h1", "h2", "h3"):
        handover = scene.play.start("w2", "0/0", handover_id=handover_id)
        scene.play.now += 10_000
        scene.play.see()
        scene.metrics.announced(handover)
        scene.play.core.handovers.forget(JOB)
    assert scene.metrics._ended == {"h3"}
    assert scene.value("rhino_handovers_total", outcome="rolled_back") == 3


def test_a_prediction_is_compared_with_what_happened() -> None:
    scene = Scene()
    for number in range(4):
        scene.play.now += 2.0
        scene.play.batch(number, {group(0, 0): "w1", group(0, 1): "w1"})
    handover = scene.play.start("w2", "0/0")
    scene.play.now += 3.5
    scene.play.batch(4, {group(0, 0): "w2", group(0, 1): "w1"})
    assert handover.plan.prediction.total_s == 3.0
    scene.metrics.announced(handover)
    assert scene.value("rhino_handover_prediction_error_seconds_sum", of="total") == pytest.approx(0.5)
    assert not scene.value("rhino_handover_prediction_error_seconds_count", of="pause"), "none was predicted"


def test_each_query_has_its_figures_by_name() -> None:
    scene = Scene()
    (job,) = scene.play.core.jobs.all()
    label = job.run.name or job.job
    assert scene.value("rhino_query_virtual_nodes", query=label) == 2
    assert scene.value("rhino_query_under_replicated_virtual_nodes", query=label) == 0
    scene.cluster.lose("w2")
    scene.play.see()
    assert scene.value("rhino_query_under_replicated_virtual_nodes", query=label) == 2


def test_a_forgotten_query_is_counted_and_leaves_its_name_to_a_new_one() -> None:
    scene = Scene()
    (job,) = scene.play.core.jobs.all()
    assert job.run.session is not None
    scene.play.now += SETTLE_S
    scene.play(ev.QueryEnded(job.run.session, job.job, job.run.run_id))
    scene.play(ev.ForgetRequested(job.job, 3600.0))
    assert scene.value("rhino_forgotten_queries") == 1
    assert scene.value("rhino_query_virtual_nodes", query=job.job) == 2
    scene.play.begin(session=2, run_id="run-2", job="job-b")
    assert scene.value("rhino_query_connected", query="q") == 1
    scene.play(ev.ForgetUndone(job.job))
    assert scene.value("rhino_forgotten_queries") == 0


def test_the_labels_of_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    monkeypatch.setattr(metrics, "QUERIES_MAX", 0)
    assert scene.value("rhino_query_virtual_nodes", query=metrics.OTHERS) == 2
    (family,) = [f for f in scene.metrics.collect() if f.name == "rhino_query_virtual_nodes"]
    assert len(family.samples) == 1


def test_the_archive_has_its_age_batch_and_drills() -> None:
    scene = Scene()
    assert scene.value("rhino_archive_drills_total", outcome="passed") is None, "there is no archive"
    query = ArchivedQuery(JOB, "q", 3, 1, 2, 4, False, 12.5, True, "")
    drills = DrillCounts(300.0, 1, 2, 3, 4, 99.0, ("damaged",))
    archive = Archive("/a", "c", (query,), 10.0, drills=drills)
    scene.registry = CollectorRegistry()
    scene.metrics = HandoverMetrics(scene.play.core, scene.registry, lambda: archive)
    (job,) = scene.play.core.jobs.all()
    label = job.run.name or job.job
    assert scene.value("rhino_query_archive_age_seconds", query=label) == 12.5
    assert scene.value("rhino_query_archived_batch_id", query=label) == 3
    outcomes = ("passed", "unproven", "failed", "not_run")
    assert [scene.value("rhino_archive_drills_total", outcome=one) for one in outcomes] == [1, 2, 3, 4]
    assert scene.value("rhino_archive_failed_groups") == 1
    assert scene.value("rhino_archive_passed_drill_age_seconds") == 99
    assert scene.value("rhino_archive_stopped") == 0

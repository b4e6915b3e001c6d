"""A journal of version 0.1: all of it is read, and what is written again has the same content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict

from handover_manager.drive.records import HandoverRecord, StepRecord, record_of_handover, record_of_step, step_key
from handover_manager.events import Restarted
from handover_manager.plan.measurements import (
    CopyMeasurement,
    MeasurementsRecord,
    StepMeasurement,
    record_of_measurements,
)
from handover_manager.queries.records import JobRecord, record_of_job
from handover_manager.service.stored import open_core
from handover_manager.view import TaskGroup
from replication_manager.protocol import events as replication
from replication_manager.service import stored
from rhino_core.ids import (
    BelowMinCopies,
    Durability,
    Epoch,
    GroupId,
    StoreId,
    StoreVersion,
    Version,
    VirtualNode,
)
from rhino_core.journal import Journal
from rhino_core.records import Record, decode, encode
from rhino_core.settings import ManagerSettings
from rhino_model.handovers import MoveKind, Phase
from rhino_model.strategy import Kind

RECORDS: dict[str, Any] = json.loads((Path(__file__).parent / "journal_of_0_1.json").read_text())
GENERATION = RECORDS["generation"]
A, B = "job-a", "job-b"


def record(key: str) -> Any:
    return json.loads(RECORDS[f"k/{key}"])


def written(value: Record) -> Any:
    """As JSON brings it back."""
    return json.loads(json.dumps(encode(value)))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    db = Rdict(str(tmp_path))
    for key, value in RECORDS.items():
        db[key] = bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
    db.close()
    opened = Journal(tmp_path)
    yield opened
    opened.close()


def test_the_replication_managers_records(journal: Journal, tmp_path: Path) -> None:
    found = stored.restore(journal, ManagerSettings(tmp_path, "127.0.0.1:0"), 0.0)
    assert found.generation == GENERATION + 1
    assert sorted(found.membership.records) == ["w1", "w2", "w3", "w4"]
    worker = found.membership.records["w3"].worker
    assert (worker.incarnation, worker.host, worker.peer_address) == ("w3/boot-3", "host-3", "host-3:7473")
    assert len(found.groups) == 8 + 4 + 1
    group = found.groups[GroupId(B, 1, 1)]
    assert [(m.worker.worker_id, m.whole) for m in group.members] == [("w2", True), ("w3", False)]
    assert (group.epoch, group.required_copies) == (Epoch(GENERATION, 41), 2)
    assert (group.settings.durability, group.settings.below_min_copies) == (Durability.SYNCED, BelowMinCopies.BLOCK)
    assert len(found.logged.floors) == 4
    assert found.logged.floors[StoreId(B, 1, 0, "left-keyToNumValues")] == Version(2**40, "")
    assert found.forgotten == {"job-gone": Epoch(GENERATION, 7)}
    assert set(found.draining) == {"w4"}


def test_the_replication_managers_records_written_again_are_the_same(journal: Journal, tmp_path: Path) -> None:
    before = dict(journal.items("replication/"))
    found = stored.restore(journal, ManagerSettings(tmp_path, "127.0.0.1:0"), 0.0)
    stored.persist(
        journal,
        [
            *(replication.PersistWorker(r.worker) for r in found.membership.records.values()),
            *(replication.PersistGroup(group) for group in found.groups.values()),
            *(replication.PersistFloor(StoreVersion(store, at)) for store, at in found.logged.floors.items()),
            *(replication.PersistForgotten(job, fence) for job, fence in found.forgotten.items()),
            *(replication.PersistDraining(worker, True) for worker in found.draining),
        ],
    )
    assert dict(journal.items("replication/")) == before


def test_jobs_and_their_measurements(journal: Journal) -> None:
    first, second = open_core(journal, 100.0).jobs.all()
    assert (first.job, first.run.run_id, first.run.name, first.run.application_id) == (A, "run-1", "clicks", "app-1")
    assert (first.run.host, first.run.since_ms, first.location) == ("driver-1", 1_000_000_000, "hdfs://nn/ckpt/clicks")
    assert (first.map.task_groups, first.map.configuration_epoch) == ((TaskGroup(0, (0,), 8),), 8)
    assert first.map.desired == {VirtualNode(A, 0, p): "w2" if p < 3 else "w1" for p in range(8)}
    measurements = first.measurements
    assert (list(measurements.intervals_s), list(measurements.errors)) == ([1.0, 1.0, 1.0], [0.125, 0.5])
    assert list(measurements.steps) == [StepMeasurement(2.0, 0.0), StepMeasurement(1.0, 1.0), StepMeasurement(1.0, 0.0)]
    assert list(measurements.copies) == [CopyMeasurement(4096, 0.5)]
    assert written(record_of_measurements(measurements)) == record(f"handover_manager/figures/{A}")
    assert written(record_of_job(first)) == record(f"handover_manager/job/{A}")
    assert second.map.task_groups == (TaskGroup(0, (0, 1), 2),)


def test_handovers_in_every_phase(journal: Journal) -> None:
    found = {h.handover_id: h for h in open_core(journal, 100.0).handovers.all()}
    assert {name: [step.phase for step in h.steps] for name, h in found.items()} == {
        "h1": [Phase.CONFIRMED, Phase.CONFIRMED],
        "h2": [Phase.CONFIRMED],
        "h3": [Phase.ROLLED_BACK],
        "h4": [Phase.CANCELLED],
        "h5": [Phase.REDIRECTED],
        "h6": [Phase.ROLLED_BACK],
        "h7": [Phase.MARKED],
        "h8": [Phase.PREPARING, Phase.PLANNED],
        "h9": [Phase.PLANNED],
    }
    assert found["h1"].confirmed_batch_id == 5
    assert (found["h1"].plan.strategy.kind, found["h1"].plan.strategy.gap_s) == (Kind.FLUID, 0.5)
    assert (found["h2"].settling, found["h2"].unwinding) == ({GroupId(A, 0, 2)}, set())
    assert (found["h3"].settling, found["h3"].unwinding) == (set(), {GroupId(A, 0, 3)})
    assert found["h4"].reason == "cancelled by request"
    assert (found["h5"].settling, found["h5"].unwinding) == (set(), {GroupId(A, 0, 5)})
    assert found["h5"].steps[0].redirected == {VirtualNode(A, 0, 5)}
    assert found["h7"].waiting_for == {VirtualNode(B, 0, 0), VirtualNode(B, 0, 1)}
    assert (found["h7"].configuration_epoch, found["h7"].marked_ms) == (2, 1_000_023_000)
    assert found["h8"].plan.moves[0].kind is MoveKind.DIRECT
    assert found["h9"].deadline_s == 300.0


@pytest.mark.parametrize(
    ("prefix", "kind"),
    [("job", JobRecord), ("figures", MeasurementsRecord), ("handover", HandoverRecord), ("step", StepRecord)],
)
def test_a_record_written_again_is_the_same(prefix: str, kind: type[Record]) -> None:
    keys = [key for key in RECORDS if key.startswith(f"k/handover_manager/{prefix}/")]
    assert keys
    for key in keys:
        value = json.loads(RECORDS[key])
        assert written(decode(kind, value, key)) == value, key


def test_handovers_written_again_are_the_same(journal: Journal) -> None:
    core = open_core(journal, 100.0)
    for handover in core.handovers.all():
        key = f"handover_manager/handover/{handover.handover_id}"
        assert written(record_of_handover(handover)) == record(key)
        for number, step in enumerate(handover.steps, 1):
            name = step_key(handover.handover_id, number)
            assert f"k/{name}" not in RECORDS or written(record_of_step(step)) == record(name), name


def test_the_marked_handover_goes_on_and_those_before_their_marker_are_rolled_back(journal: Journal) -> None:
    core = open_core(journal, 100.0)
    core.handle(Restarted(), now=100.0)
    core.check_invariants()
    assert [h.handover_id for h in core.handovers.active()] == ["h7"]
    assert (
        core.handovers.find("h8").reason
        == "step 1 of 2: the manager restarted before the marker; confirmed and standing: 0"
    )
    assert core.jobs[B].map.pinned == {VirtualNode(B, 0, p): "w3" for p in (0, 1)}
    assert core.jobs[A].map.pinned == {VirtualNode(A, 0, 2): "w2"}, "h2 settles"

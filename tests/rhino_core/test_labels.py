"""Zones and racks of workers: settings, messages and records have them, and the gate checks them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from replication_manager.protocol import events as ev
from replication_manager.service import stored
from rhino_core.errors import InvalidRequestError, InvalidSettingError
from rhino_core.ids import Epoch, GroupId, JobSettings, Member, ReplicaGroup, Worker
from rhino_core.journal import Journal
from rhino_core.rpc import gate
from rhino_core.rpc.convert import labelled_worker_to_pb, replica_group_to_pb, worker_of, worker_to_pb
from rhino_core.settings import ManagerSettings, SidecarSettings
from rhino_pb import common_pb2

WORKER = Worker("w", "w/1", "host", "host:1", "zone-1", "rack-7")
LABELS = ("zone", "rack")


def test_registrations_carry_all_fields_of_a_worker() -> None:
    message = labelled_worker_to_pb(WORKER)
    gate.check(message)
    assert {field.name for field, _ in message.ListFields()} == {f.name for f in dataclasses.fields(Worker)}
    assert dataclasses.asdict(worker_of(message)) == dataclasses.asdict(WORKER)


def test_members_of_groups_have_no_labels() -> None:
    group = ReplicaGroup(GroupId("job", 0, 1), Epoch(3, 4), (Member(WORKER, True),), 1, JobSettings(0))
    (member,) = replica_group_to_pb(group).members
    assert not {field.name for field, _ in member.worker.ListFields()} & set(LABELS)
    assert worker_of(worker_to_pb(WORKER)) == WORKER, "labels make no other worker of it"


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("value", ["../up", "a/b", "a b", "x" * 200, "\x1b[2J"])
def test_labels_that_are_no_names_are_refused(label: str, value: str, tmp_path: Path) -> None:
    message = labelled_worker_to_pb(WORKER)
    setattr(message, label, value)
    with pytest.raises(InvalidRequestError, match=label):
        gate.check(message)
    with pytest.raises(InvalidSettingError, match=label):
        SidecarSettings(tmp_path, "host", "w", "host:1", **{label: value})  # type: ignore[arg-type]


def test_the_journal_keeps_labels_and_an_older_record_has_none(tmp_path: Path) -> None:
    journal = Journal(tmp_path, bootstrap=True)
    stored.persist(journal, [ev.PersistWorker(WORKER)])
    ((key, value),) = journal.items("replication/worker/")
    settings = ManagerSettings(tmp_path, "127.0.0.1:0")
    (found,) = stored.restore(journal, settings, 0.0).membership.records.values()
    assert (found.worker.zone, found.worker.rack) == ("zone-1", "rack-7")
    older = common_pb2.Worker.FromString(value)
    older.zone = older.rack = ""
    journal.write({key: older.SerializeToString()})
    (found,) = stored.restore(journal, settings, 0.0).membership.records.values()
    assert (found.worker, found.worker.zone, found.worker.rack) == (WORKER, "", "")
    journal.close()

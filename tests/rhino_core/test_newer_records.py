"""Records of a newer version, with fields and values that this one does not know: one may go back to this one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from handover_manager.drive.records import record_of_handover
from handover_manager.queries.records import record_of_job
from handover_manager.service.stored import restore
from replication_manager.protocol import events as ev
from replication_manager.service import stored
from replication_manager.service.stored import GROUPS
from rhino_core.errors import PreconditionError
from rhino_core.ids import (
    NO_EPOCH,
    BelowMinCopies,
    Durability,
    Epoch,
    GroupId,
    JobSettings,
    Member,
    ReplicaGroup,
    StoreId,
    StoreVersion,
    Version,
)
from rhino_core.journal import Journal
from rhino_core.rpc.convert import settings_of
from rhino_core.settings import ManagerSettings
from rhino_pb import common_pb2
from tests.replication_manager.protocol.harness import worker
from worker_runtime.manager_link.directory import KnownWorkers
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.index.index import Index
from worker_runtime.storage.keeping.scrub_round import Damage, ScrubRound
from workloads.adaptation.scene import pair

DATA = {"configuration_epochs"}  # their keys are names


def with_more(value: Any) -> Any:
    """The record with a further field in every object."""
    if isinstance(value, list):
        return [with_more(element) for element in value]
    if not isinstance(value, dict):
        return value
    more = {key: element if key in DATA else with_more(element) for key, element in value.items()}
    return {**more, "addedLater": {"n": [1]}, "added_later": 1}


def test_handovers_and_jobs() -> None:
    play = pair()
    play.start("w2", "0/0", "0/1")
    core = play.core
    (handover,) = core.handovers.all()
    newer = {key: with_more(value) for key, value in play.journal.items()}
    assert any("added_later" in json.dumps(value) for value in newer.values())
    found = restore(newer, now=0.0, wall_offset_s=0.0)
    assert record_of_handover(found.handovers.find(handover.handover_id)) == record_of_handover(handover)
    (job,) = core.jobs.all()
    assert record_of_job(found.jobs[job.job]) == record_of_job(job)


def test_workers_groups_and_floors(tmp_path: Path) -> None:
    group = ReplicaGroup(GroupId("job", 0, 1), Epoch(3, 4), (Member(worker("a"), True),), 1, JobSettings(0))
    floor = StoreVersion(StoreId("job", 0, 1, "default"), Version(5, "id"))
    journal = Journal(tmp_path, bootstrap=True)
    stored.persist(journal, [ev.PersistWorker(worker("a")), ev.PersistGroup(group), ev.PersistFloor(floor)])
    journal.write({key: with_more(value) for key, value in journal.items("replication/")})
    found = stored.restore(journal, ManagerSettings(tmp_path, "127.0.0.1:0"), 0.0)
    journal.close()
    assert [record.worker for record in found.membership.records.values()] == [worker("a")]
    assert list(found.groups.values()) == [group]
    assert found.logged.floors == {floor.store: floor.version}
    assert found.forgotten == {}
    assert group.epoch > NO_EPOCH


def test_what_a_sidecar_remembers() -> None:
    damage = Damage(StoreId("job", 0, 1, "default"), "1_a.zip", ("SSTs/1-a.sst",))
    scrub = ScrubRound(number=3, checked_bytes=7, damaged=[damage])
    assert ScrubRound.from_json(json.dumps(with_more(json.loads(scrub.to_json())))) == scrub
    stored = json.dumps([with_more(dataclasses.asdict(worker("a")))])

    class Index:
        def metadata(self, key: str) -> str:
            return stored

    assert KnownWorkers(Index()).all() == [worker("a")]  # type: ignore[arg-type]


UNKNOWN_FIELD = b"\xa0\x06\x01"  # number 100


def group_of(journal: Journal, **settings: int) -> None:
    """A group of which a newer version wrote the settings."""
    group = ReplicaGroup(GroupId("job", 0, 1), Epoch(3, 4), (Member(worker("a"), True),), 1, JobSettings(0))
    stored.persist(journal, [ev.PersistGroup(group)])
    ((key, data),) = journal.items(GROUPS.prefix)
    newer = common_pb2.ReplicaGroup.FromString(data)
    newer.settings.MergeFrom(common_pb2.JobSettings(**settings))  # type: ignore[arg-type]  # no member has this number
    journal.write({key: newer.SerializeToString() + UNKNOWN_FIELD})


def test_an_unknown_promise_of_a_group_is_taken_for_the_stronger_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path, bootstrap=True)
    group_of(journal, durability=77, below_min_copies=77)
    (found,) = stored.restore(journal, ManagerSettings(tmp_path, "127.0.0.1:0"), 0.0).groups.values()
    journal.close()
    assert found.settings.durability is Durability.SYNCED
    assert found.settings.below_min_copies is BelowMinCopies.BLOCK


def test_unknown_promises_of_a_message_are_the_stronger_ones() -> None:
    message = common_pb2.JobSettings()
    message.MergeFromString(b"\x20\x4d\x28\x4d")  # fields 4 and 5 are 77
    found = settings_of(message)
    assert (found.durability, found.below_min_copies) == (Durability.SYNCED, BelowMinCopies.BLOCK)


def test_unknown_values_in_the_record_of_a_handover() -> None:
    play = pair()
    play.start("w2", "0/0", "0/1")
    (key,) = (key for key in play.journal if key.startswith("handover_manager/handover/"))
    (step,) = (key for key in play.journal if key.startswith("handover_manager/step/"))
    newer: dict[str, Any] = json.loads(json.dumps(play.journal))
    newer[key]["plan"]["strategy"]["kind"] = "later"
    newer[key]["plan"]["steps"][0]["moves"][0]["kind"] = "later"
    (found,) = restore(newer, now=0.0, wall_offset_s=0.0).handovers.all()
    assert found.plan.moves[0].node == play.handover().plan.moves[0].node
    newer[step]["phase"] = "later"
    with pytest.raises(PreconditionError, match=r"phase of step 1 of handover h1 is 'later': a newer version of Rhino"):
        restore(newer, now=0.0, wall_offset_s=0.0)


def test_an_unknown_durability_in_an_index_is_the_stronger_one(tmp_path: Path) -> None:
    db = Rdict(str(tmp_path), Options(raw_mode=True))
    db[b"d/job"] = b"later"
    db.close()
    index = Index(tmp_path, Disk(tmp_path, 0))
    assert index.durabilities() == {"job": Durability.SYNCED}
    index.close()

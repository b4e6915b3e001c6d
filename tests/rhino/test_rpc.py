import inspect
from pathlib import Path

import grpc
import pytest

from rhino import errors, ids
from rhino.rpc import convert, status
from rhino.rpc.channel import aio_channel, call, call_sync, sync_channel
from rhino.settings import ManagerSettings, SidecarSettings
from rhino_pb import common_pb2 as pb
from rhino_pb import replication_pb2, replication_pb2_grpc

STORE = ids.StoreId("job", 0, 3, "default")
WORKERS = tuple(ids.Worker(f"w{i}", f"s{i}/b", f"127.0.0.{i}", f"127.0.0.{i}:1") for i in (1, 2))


def test_every_error_has_a_status() -> None:
    kinds = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, errors.RhinoError)]
    made = [k(1, 2) if k is errors.StaleEpochError else k("text") for k in kinds]
    assert {status.status_of(e) for e in made} >= {grpc.StatusCode.DATA_LOSS, grpc.StatusCode.ABORTED}
    assert status.status_of(errors.StaleEpochError(2, 1)) is grpc.StatusCode.FAILED_PRECONDITION
    assert status.status_of(errors.LostError("x")) is grpc.StatusCode.DATA_LOSS


def test_an_unreachable_manager_is_named() -> None:
    with sync_channel("127.0.0.1:1") as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        with pytest.raises(errors.UnavailableError, match="the manager"):
            call_sync("the manager", lambda: stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=2))


async def test_an_unreachable_manager_is_named_by_asynchronous_calls_too() -> None:
    async with aio_channel("127.0.0.1:1") as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        with pytest.raises(errors.UnavailableError, match="the manager"):
            await call("the manager", lambda: stub.ListWorkers(replication_pb2.ListWorkersRequest(), timeout=2))


def test_groups_and_files_survive_the_wire() -> None:
    settings = ids.JobSettings(2, 3, ids.BelowMinCopies.BLOCK, ids.Durability.SYNCED)
    members = (ids.Member(WORKERS[0], True), ids.Member(WORKERS[1], False))
    group = ids.ReplicaGroup(STORE.group, ids.Epoch(2, 7), members, 1, settings)
    assert convert.replica_group_of(convert.replica_group_to_pb(group)) == group
    entry = ids.FileEntry(STORE, "2_b.changelog", 10, 99, lineage=(ids.Version(1, "a"),), written_by="w1")
    assert convert.file_of(convert.file_to_pb(entry)) == entry
    zipped = ids.FileEntry(STORE, "2_b.zip", 10, 99, references=("SSTs/1-a.sst",))
    assert convert.file_of(convert.file_to_pb(zipped)) == zipped


def test_unset_settings_mean_the_defaults() -> None:
    assert convert.settings_of(pb.JobSettings()) == ids.JobSettings()
    assert convert.settings_of(convert.settings_to_pb(ids.JobSettings(0))).replication_factor == 0


def test_settings_name_field_value_and_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidSettingError, match=r"listen = 'nowhere'.*host:port"):
        ManagerSettings(tmp_path, "nowhere")
    with pytest.raises(errors.InvalidSettingError, match=r"lease_s = 0.1"):
        ManagerSettings(tmp_path, "h:1", lease_s=0.1)
    with pytest.raises(errors.InvalidSettingError, match="memory_limit_bytes"):
        SidecarSettings("w", "h", tmp_path, tmp_path / "s", "h:1", "h:2", memory_limit_bytes=1)

"""The table of rights has every method, and says who may call it."""

from __future__ import annotations

import itertools

import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from rhino_core.errors import AccessDeniedError
from rhino_core.security.identity import Identity, Role
from rhino_core.security.rights import RIGHTS, check
from rhino_pb import handover_pb2, peer_pb2, replication_pb2, witness_pb2

FILES = (handover_pb2, peer_pb2, replication_pb2, witness_pb2, health_pb2, reflection_pb2)


def methods() -> dict[str, MethodDescriptor]:
    services = itertools.chain.from_iterable(file.DESCRIPTOR.services_by_name.values() for file in FILES)
    return {f"/{service.full_name}/{method.name}": method for service in services for method in service.methods}


def identity(role: Role, name: str = "a") -> Identity:
    return Identity("c", role, name)


def test_every_method_over_the_network_has_an_entry() -> None:
    assert RIGHTS.keys() == methods().keys()


@pytest.mark.parametrize("method", sorted(RIGHTS))
def test_a_worker_speaks_for_itself_only(method: str) -> None:
    """Every request in which a worker says who it is."""
    request = methods()[method].input_type
    says = {"worker_id", "worker", "sender"} & set(request.fields_by_name)
    if Role.WORKER in RIGHTS[method].roles and says:
        assert RIGHTS[method].names is not None, f"{method}: {says}"
        assert RIGHTS[method].roles == {Role.WORKER}


def test_a_request_with_another_name_is_refused() -> None:
    method = "/rhino.v1.ReplicationManager/Heartbeat"
    check(method, identity(Role.WORKER), replication_pb2.HeartbeatRequest(worker_id="a"))
    with pytest.raises(AccessDeniedError, match="rhino://c/worker/a speaks for worker 'b'"):
        check(method, identity(Role.WORKER), replication_pb2.HeartbeatRequest(worker_id="b"))
    sender = "/rhino.v1.Peer/OpenPush"
    push = peer_pb2.OpenPushRequest()
    push.sender.worker_id = "b"
    with pytest.raises(AccessDeniedError, match="speaks for worker 'b'"):
        check(sender, identity(Role.WORKER), push)


def test_readers_change_nothing() -> None:
    changes = {"Start", "Cancel", "Drain", "Forget", "Undo", "Move", "Set", "Change", "Publish", "Register", "Open"}
    allowed = {method for method, right in RIGHTS.items() if Role.READER in right.roles}
    assert not [method for method in allowed if method.rpartition("/")[2].startswith(tuple(changes))]
    assert "/rhino.v1.HandoverManager/ListJobs" in allowed


def test_an_unknown_method_is_nobodys() -> None:
    for role in Role:
        with pytest.raises(AccessDeniedError):
            check("/rhino.v1.Peer/New", identity(role))

"""Who is asked which versions of a batch it wrote."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from handover_manager.service import writers
from handover_manager.service.writers import WriterFinder
from rhino_core.errors import UnavailableError
from rhino_core.ids import StoreId, StoreVersion, Version, Worker
from rhino_core.security.transport import PLAIN
from rhino_pb import peer_pb2, peer_pb2_grpc
from workloads.adaptation.scene import worker

VERSIONS = [StoreVersion(StoreId("job", 0, partition, "default"), Version(1, f"x{partition}")) for partition in (0, 1)]
WORKERS = [worker(name) for name in ("a", "b", "c", "d")]


class Sidecars:
    """`wrote`: the versions of each worker, by partition. Workers in `silent` do not answer."""

    def __init__(self, wrote: Mapping[str, set[int]], silent: Collection[str]) -> None:
        self.asked: list[str] = []
        self._wrote, self._silent = wrote, silent

    def channel(self, asked: Worker, transport: object) -> str:
        return asked.worker_id

    def stub(self, name: str) -> Sidecars:
        self._name = name
        return self

    def CheckVersions(self, request: peer_pb2.CheckVersionsRequest, timeout: float) -> peer_pb2.CheckVersionsReply:
        self.asked.append(self._name)
        if self._name in self._silent:
            raise UnavailableError(self._name)
        mine = self._wrote.get(self._name, set())
        return peer_pb2.CheckVersionsReply(
            checks=[
                peer_pb2.VersionCheck(version=v, held=True, written_here=v.store.partition in mine)
                for v in request.versions
            ]
        )


async def asked_of(
    monkeypatch: pytest.MonkeyPatch, wrote: Mapping[str, set[int]], near: Collection[str], silent: Collection[str] = ()
) -> tuple[list[str], dict[int, str]]:
    sidecars = Sidecars(wrote, silent)

    async def call(doing: str, once: object) -> object:
        assert callable(once)
        return once()

    monkeypatch.setattr(writers, "worker_channel", sidecars.channel)
    monkeypatch.setattr(peer_pb2_grpc, "PeerStub", sidecars.stub)
    monkeypatch.setattr(writers, "call", call)
    found = await WriterFinder(PLAIN).find([(version, "a") for version in VERSIONS], WORKERS, near)
    return sidecars.asked, {version.store.partition: name for version, name in found.items()}


async def test_only_the_desired_worker_is_asked_if_it_wrote_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await asked_of(monkeypatch, {"a": {0, 1}}, {"a", "b"}) == (["a"], {0: "a", 1: "a"})


async def test_workers_with_executors_are_asked_before_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await asked_of(monkeypatch, {"a": {0}, "b": {1}}, {"a", "b"}) == (["a", "b"], {0: "a", 1: "b"})
    asked, found = await asked_of(monkeypatch, {"a": {0}, "d": {1}}, {"a", "b"})
    assert (asked, found) == (["a", "b", "c", "d"], {0: "a", 1: "d"})


async def test_a_silent_worker_makes_no_work_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, found = await asked_of(monkeypatch, {"b": {1}}, {"a", "b"}, silent={"a"})
    assert (asked, found) == (["a", "b"], {1: "b"})
    asked, _ = await asked_of(monkeypatch, {"d": {1}}, set(), silent={"a"})
    assert asked == ["a", "b", "c", "d"], "it is not known where executors are"

"""Real sidecars under the real manager with certificates: replication works, and renewals disturb nobody."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rhino.client import connection
from rhino.client.handover_client import HandoverClient
from rhino.client.overview import fetch_overview
from rhino.client.scrub import start_scrub
from rhino_core.errors import AccessDeniedError, UnavailableError
from rhino_core.ids import StoreId, Version
from rhino_core.security.certificates import Authority
from rhino_core.security.choice import client_transport
from rhino_core.security.identity import Role
from rhino_core.security.sources import FolderSource, new_cluster_key
from rhino_core.security.transport import PLAIN
from rhino_model.strategy import Strategy
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from tests.worker_runtime.support.certificates import AUDIT_LOG, Folders, folders, running_query, secure_cluster
from tests.worker_runtime.support.with_manager import lineage, manager, settings_of, version

__all__ = ["folders"]

STORE = StoreId("job", 0, 3, "default")


def audited(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def two_whole_members(address: str, *, newest: int = 0) -> None:
    """Waits until the only group has two whole members, with this version or a newer one."""
    async with asyncio.timeout(60):
        while True:
            [group] = (await asyncio.to_thread(fetch_overview, address)).groups
            good = [m for m in group.members if m.whole and m.state == "live" and m.newest_version >= newest]
            if len(good) == 2:
                return
            await asyncio.sleep(0.05)


async def test_versions_are_replicated_fetched_and_shown(folders: Folders, tmp_path: Path) -> None:
    async with secure_cluster(folders, tmp_path, "a", "b", "c") as (address, (a, b, c)):
        async with a.attach() as client:
            for number in range(1, 4):
                reply = await client.commit(STORE, version(number), changelog_bytes(number), lineage(number))
                assert reply.copies == 2
            content = client.path(STORE, f"{version(3)}.changelog").read_bytes()
        overview = await asyncio.to_thread(fetch_overview, address)
        members = [member.worker_id for member in overview.groups[0].members]
        outside = next(process for process in (a, b, c) if process.settings.worker_id not in members)
        async with outside.attach() as client:  # its sidecar fetches the files from a member
            await client.prepare(STORE, version(3))
            assert client.path(STORE, f"{version(3)}.changelog").read_bytes() == content
        assert b.worker is not None
        assert (await asyncio.to_thread(start_scrub, "b", b.worker.peer_address)).number
        lines = audited(tmp_path / f"b-{AUDIT_LOG}")
        (line,) = [line for line in lines if not line["method"].endswith("/Attach")]
        assert (line["principal"], line["method"]) == ("rhino://c/operator/alice", "/rhino.v1.Peer/StartScrub")
        assert (line["outcome"], line["names"]) == ("ok", {})
        with pytest.raises(UnavailableError):  # another worker's name at its address
            await asyncio.to_thread(start_scrub, "a", b.worker.peer_address)


async def test_who_may_not_call_is_told_so(folders: Folders, tmp_path: Path) -> None:
    async with secure_cluster(folders, tmp_path, "a", "b") as (address, _):
        connection.use(client_transport(folders.of(Role.READER, "grafana"), ""))
        assert len((await asyncio.to_thread(fetch_overview, address)).workers) == 2
        with HandoverClient(address) as client, pytest.raises(AccessDeniedError, match="rhino://c/reader/grafana"):
            await asyncio.to_thread(client.forget_job, "job")
        for stranger in (PLAIN, client_transport(Folders(tmp_path / "strange").of(Role.OPERATOR, "eve"), "")):
            connection.use(stranger)
            with pytest.raises(UnavailableError):
                await asyncio.to_thread(fetch_overview, address, timeout_s=2)


async def test_who_moved_and_forgot_what_is_known_later(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 0.0)
    alice, etl = "rhino://c/operator/alice", "rhino://c/driver/etl"
    async with secure_cluster(folders, tmp_path, "a", "b", "c") as (address, (a, _, _)):
        async with a.attach() as client:
            await client.commit(STORE, version(1), changelog_bytes(1), lineage(1))
        await two_whole_members(address)
        members = (await asyncio.to_thread(fetch_overview, address)).groups[0].members
        with HandoverClient(address) as operator:
            async with running_query(address, folders):
                later = Strategy(start_at_ms=int(time.time() * 1000) + 60_000)  # so that it can be cancelled
                start = partial(operator.start, "q", ["0/3"], members[1].worker_id, strategy=later)
                started = await asyncio.to_thread(start)
                why = "\n".join((await asyncio.to_thread(operator.explain, "q", "0/3")).reasons)
                assert f"asked for by {alice}) moves it from a" in why
                await asyncio.to_thread(operator.cancel, started.handover_id)
            await asyncio.to_thread(operator.forget_job, "q")
            (job,) = (await asyncio.to_thread(fetch_overview, address)).jobs
            (handover,) = await asyncio.to_thread(operator.list)
            assert (job.forgotten_by, started.by, handover.by) == (alice, alice, alice)
    lines = audited(tmp_path / AUDIT_LOG)
    found = [(line["principal"], line["method"].rpartition("/")[2], line["outcome"]) for line in lines]
    assert set(found[:3]) == {(f"rhino://c/worker/{name}", "Register", "ok") for name in "abc"}
    assert found[3:5] == [(etl, "DriverSession", "accepted"), (alice, "StartHandover", "ok")]
    names = {"job": "q", "virtual_nodes": ["0/3"], "target": members[1].worker_id, "handover_id": started.handover_id}
    assert lines[4]["names"] == names
    assert found[5] == (alice, "CancelHandover", "ok")
    assert sorted(found[6:]) == [(etl, "DriverSession", "ended"), (alice, "ForgetJob", "ok")]


async def test_commits_go_on_while_all_certificates_are_renewed(folders: Folders, tmp_path: Path) -> None:
    """A new authority, in three steps: trusted by all, used by all, the former one no longer trusted."""
    async with secure_cluster(folders, tmp_path, "a", "b", "c") as (address, (a, b, c)):
        async with a.attach() as client:
            committed = 0

            async def commit(times: int) -> None:
                nonlocal committed
                for _ in range(times):
                    committed += 1
                    reply = await client.commit(
                        STORE, version(committed), changelog_bytes(committed), lineage(committed)
                    )
                    assert reply.copies == 2

            await commit(5)
            former, new = folders.authority, Authority.create("c")
            both = former.certificate_pem + new.certificate_pem
            for folder in (tmp_path / "tls").iterdir():
                (folder / "ca.crt").write_bytes(both)
                await commit(1)
            folders.renew(new)
            connection.use(client_transport(str(tmp_path / "tls/alice"), ""))  # a command that starts now
            await commit(5)
            assert FolderSource(tmp_path / "tls/a").current().leaf.issuer == new.certificate.subject
            # The secondary is restarted or replaced. Either way the links to it are new.
            members = (await asyncio.to_thread(fetch_overview, address)).groups[0].members
            secondary = next(one for one in (b, c) if one.settings.worker_id == members[1].worker_id)
            await secondary.end()
            await secondary.start()
            await two_whole_members(address)
            await commit(5)
        await two_whole_members(address, newest=committed)


async def test_a_cluster_key_is_enough(tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    settings = replace(settings_of(tmp_path), cluster_key=str(key))
    connection.use(client_transport("", str(key)))
    try:
        async with asyncio.timeout(120), Cluster(tmp_path) as cluster, manager(settings) as address:
            cluster.address = address
            a, _ = await cluster.start("a", "b", cluster_key=str(key))
            async with a.attach() as client:
                reply = await client.commit(STORE, Version(1, "id1"), changelog_bytes(1), [])
                assert reply.copies == 2
            assert len((await asyncio.to_thread(fetch_overview, address)).workers) == 2
    finally:
        connection.use(None)

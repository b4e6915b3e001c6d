"""Real sidecars with certificates, and somebody between them: files stay secret and exact, and people hear of it."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest

from rhino_core.security.certificates import Authority
from rhino_core.security.identity import Role
from tests.worker_runtime.attacker import TO_SENDER, Attack, Attacker
from tests.worker_runtime.cluster import Process
from tests.worker_runtime.support.certificates import Folders, folders
from tests.worker_runtime.support.encrypted_pushes import MARK, STORE, log_lines, pair
from tests.worker_runtime.support.with_manager import lineage, version

__all__ = ["folders"]
ALARM = "push stream ended: its bytes are not those that the peer has sent"
MIB = 1 << 20


async def lines_that_say(process: Process, message: str, count: int) -> list[dict[str, Any]]:
    """Waits for so many lines of its log with this message."""
    async with asyncio.timeout(30):
        while True:
            found = [line for line in log_lines(process) if line["message"] == message]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


async def alarms_counted(process: Process) -> dict[str, int]:
    """The metric of alarms, by kind."""

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{process.settings.metrics_port}/metrics", timeout=10) as reply:
            return str(reply.read().decode())

    found = {}
    for line in (await asyncio.to_thread(read)).splitlines():
        if line.startswith("rhino_push_alarms_total{"):
            kind, value = line.split('"')[1], line.rpartition(" ")[2]
            found[kind] = int(float(value))
    return {kind: count for kind, count in found.items() if count}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("off", [False, True], ids=["default", "off"])
async def test_nobody_on_the_network_reads_files(folders: Folders, tmp_path: Path, off: bool) -> None:
    """Neither their bytes nor their names. Without encryption, all of it can be read, so the eavesdropper is real."""
    attacker = Attacker(plain=off)
    modes = ("off", "off") if off else ("", "")
    async with pair(folders, tmp_path, attacker, modes) as sidecars, sidecars.a.attach() as client:
        for large in (0, MIB, 0):
            await sidecars.commit(client, large=large)
        await sidecars.commit(client, small=3 * MIB)  # a thread takes over on the commit lane, and gives it back
        await sidecars.commit(client)
    assert len(attacker.seen) > 4 * MIB
    for secret in (MARK, b"SSTs/000002-x.sst", b"default", str(version(1)).encode()):
        assert (secret in attacker.seen) == off
    warned = [line for line in log_lines(sidecars.a) if "other sidecars may be plain" in line["message"]]
    assert bool(warned) == off
    for process in (sidecars.a, sidecars.b):
        assert not await lines_that_say(process, ALARM, 0)


# An attack, who notices it, and as what.
ATTACKS = [
    (Attack("flip"), "b", "tag"),
    (Attack("flip", large=True), "b", "tag"),
    (Attack("flip_tag", large=True, after=3), "b", "tag"),
    (Attack("shorten", large=True), "b", "tag"),
    (Attack("replay", large=True, after=2), "b", "tag"),
    (Attack("repeat"), "b", "tag"),
    (Attack("drop", large=True), "b", "tag"),
    (Attack("empty"), "b", "length"),
    (Attack("empty", large=True), "b", "length"),
    (Attack("truncate"), "b", "cut"),
    (Attack("truncate", large=True), "b", "cut"),
    (Attack("flip", way=TO_SENDER), "a", "tag"),
    (Attack("repeat", way=TO_SENDER), "a", "tag"),
    (Attack("empty", way=TO_SENDER), "a", "length"),
    (Attack("truncate", way=TO_SENDER), "a", "cut"),
    # The handshake, before any message.
    (Attack("flip", after=0), "b", "handshake"),
    (Attack("flip", way=TO_SENDER, after=0), "a", "handshake"),
]


@pytest.mark.timeout(300)
async def test_every_changed_byte_ends_the_stream_with_an_alarm(folders: Folders, tmp_path: Path) -> None:
    """Replication goes on over a new stream, and all files are exact."""
    attacker = Attacker()
    counted: dict[str, dict[str, int]] = {"a": {}, "b": {}}
    async with pair(folders, tmp_path, attacker) as sidecars, sidecars.a.attach(commit_timeout_s=45) as client:
        processes = {"a": sidecars.a, "b": sidecars.b}
        await sidecars.commit(client, large=MIB)
        for attack, noticed_by, kind in ATTACKS:
            if attack.after == 0:
                attacker.cut_all()
            attacker.attack = attack
            await sidecars.commit(client, large=2 * MIB)
            assert attack.done.is_set(), attack
            former = sum(counted[noticed_by].values())
            line = (await lines_that_say(processes[noticed_by], ALARM, former + 1))[former]
            other = "b" if noticed_by == "a" else "a"
            assert (line["peer"], line["kind"]) == (other, kind), (attack, line)
            assert line["level"] == ("warning" if kind == "cut" else "error")
            counted[noticed_by][kind] = counted[noticed_by].get(kind, 0) + 1
            attacker.attack = None
        await sidecars.commit(client, large=2 * MIB)
        for name, process in processes.items():
            assert await alarms_counted(process) == counted[name]
            audited = [line for line in log_lines(process) if line["logger"] == "rhino.audit" and "method" in line]
            other = "b" if name == "a" else "a"
            lines = [line for line in audited if line["method"] == "push" and line["outcome"] != "no ticket"]
            assert {line["outcome"] for line in lines} == set(counted[name])
            assert {line["principal"] for line in lines} == {f"rhino://c/worker/{other}"}


@pytest.mark.timeout(300)
async def test_a_sidecar_that_must_encrypt_takes_no_plain_stream(folders: Folders, tmp_path: Path) -> None:
    """The other one is off. Both say what to do, and no byte leaves."""
    attacker = Attacker(plain=True)
    async with pair(folders, tmp_path, attacker, ("off", "required")) as sidecars:
        async with sidecars.a.attach(commit_timeout_s=3) as client:
            with pytest.raises(grpc.RpcError, match="needs 2 whole members"):
                await client.commit(STORE, version(1), MARK, lineage(1))
        told = await lines_that_say(sidecars.a, "push link down", 1)
        assert told[0]["level"] == "warning"
        for words in (
            "accepts only those that are encrypted: give",
            "the same --push-encryption",
        ):
            assert words in told[0]["error"]
        assert MARK not in attacker.seen


@pytest.mark.timeout(300)
async def test_streams_end_with_the_authority_of_their_sender(folders: Folders, tmp_path: Path) -> None:
    """They were opened while it counted. The sender may open new ones as soon as its certificate counts again."""
    async with pair(folders, tmp_path, Attacker()) as sidecars, sidecars.a.attach() as client:
        await sidecars.commit(client, large=MIB)
        trusted = Path(folders.of(Role.WORKER, "b")) / "ca.crt"
        former = trusted.read_bytes()
        trusted.write_bytes(Authority.create("c").certificate_pem)
        ended = await lines_that_say(sidecars.b, "push stream ended: the certificate of its sender counts no more", 2)
        assert {line["lane"] for line in ended} == {"commit", "bulk"}
        assert {line["peer"] for line in ended} == {"a"}
        trusted.write_bytes(former)
        await sidecars.commit(client, large=MIB)

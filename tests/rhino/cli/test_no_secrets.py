"""No secret is in a log, an error or an answer of real daemons with certificates, however much they log."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from crc32c import crc32c

from rhino.client import connection
from rhino.client.overview import fetch_overview
from rhino_core.ids import FileEntry, JobSettings, StoreId, Version
from rhino_core.rpc import greeting
from rhino_core.rpc.channel import sync_channel
from rhino_core.security.choice import client_transport
from rhino_core.security.sources import new_cluster_key
from rhino_pb import sidecar_pb2, sidecar_pb2_grpc
from spark_connector.rpc.sidecar import SidecarSession
from tests import forked
from tests.worker_runtime.cluster import changelog_bytes

STORE, VERSION = StoreId("job", 0, 0, "default"), Version(1, "id1")


@contextmanager
def daemon(folder: Path, kind: str, *arguments: str) -> Iterator[dict[str, str]]:
    """`rhino <kind>` at debug level, with its output in the folder."""
    options = ("--log-level", "debug", "--data-dir", str(folder / "data"))
    folder.mkdir()
    with forked.daemon(kind, *arguments, *options, log=folder / "err") as ready:
        (folder / "out").write_text(json.dumps(ready))
        yield ready


def stub_of(channel: grpc.Channel) -> Any:
    return sidecar_pb2_grpc.SidecarStub(channel)


def refused(socket: Path, request: sidecar_pb2.AttachRequest) -> str:
    """The error of an Attach."""
    with sync_channel(f"unix://{socket}") as channel:
        with pytest.raises(grpc.RpcError) as ended:
            next(stub_of(channel).Attach(request, timeout=20))
        return str(ended.value)


def spellings(secret: bytes) -> set[str]:
    """How a secret could be written."""
    encoded = base64.b64encode(secret).decode().rstrip("=")
    return {secret.hex(), encoded, encoded.replace("+", "-").replace("/", "_"), repr(secret)[2:-1]}


def content(bundle: Path) -> dict[str, str]:
    """The files of a support bundle, by their names below its folder."""
    found = {}
    with tarfile.open(bundle) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
    return found


@pytest.mark.timeout(200)
def test_what_daemons_and_commands_write(tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    told: list[str] = []
    with ExitStack() as running:
        common = ("--cluster-key", str(key), "--audit-log")
        listen = ("--listen", "127.0.0.1:0")
        audits = [str(tmp_path / f"{name}.audit") for name in ("m", "a", "b")]
        manager = running.enter_context(daemon(tmp_path / "m", "manager", *common, audits[0], *listen, "--bootstrap"))[
            "address"
        ]
        sidecars = [
            running.enter_context(
                daemon(
                    tmp_path / name,
                    *("sidecar", *common, audits[number], *listen, "--manager", manager, "--worker-id", name),
                    *("--host", f"host-{name}", "--socket", str(tmp_path / f"{name}.sock")),
                )
            )
            for number, name in enumerate("ab", 1)
        ]
        connection.use(client_transport("", str(key)))
        running.callback(connection.use, None)
        socket = Path(sidecars[0]["socket"])
        source = tmp_path / "source"
        source.write_bytes(changelog_bytes(1))
        with SidecarSession(socket, JobSettings(1), client="test", timeout_s=60) as session:
            session_id = session._info.session_id
            entry = FileEntry(STORE, f"{VERSION}.changelog", 2000, crc32c(source.read_bytes()))
            session.store(entry, source)
        token = greeting.ask(socket)
        used = sidecar_pb2.AttachRequest(client="test", token=token, protocol_version="1")
        with sync_channel(f"unix://{socket}") as channel:
            next(stub_of(channel).Attach(used, timeout=20))
        told.append(refused(socket, used))
        ended = sidecar_pb2.AddRequest(session_id=session_id, name="1.sst", inbox_name="x")
        ended.store.CopyFrom(sidecar_pb2.AddRequest().store)
        ended.store.job, ended.store.store = "job", "default"
        with sync_channel(f"unix://{socket}") as channel, pytest.raises(grpc.RpcError) as unknown:
            sidecar_pb2_grpc.SidecarStub(channel).Add(ended, timeout=20)
        told.append(str(unknown.value))
        assert len(fetch_overview(manager).workers) == 2
        access = ("--manager", manager, "--cluster-key", str(key))
        for arguments in (("status", "--json"), ("history",), ("forget", "--job", "nothing", "--yes")):
            done = forked.rhino(*arguments, *access)
            told += [done.stdout, done.stderr]
        bundle = tmp_path / "report.tar.gz"
        logs = [f"--log={tmp_path / name / 'err'}" for name in "mab"]
        done = forked.rhino("support-bundle", "--output", str(bundle), *logs, *access)
        assert (done.returncode, done.stderr) == (0, "")
    reported = content(bundle)
    assert {"status.txt", "status.json", "workers/a.json", "workers/b.json", "logs/0-err"} <= set(reported)
    assert '"stored_bytes": "2000"' in reported["workers/a.json"]
    told += reported.values()
    secrets = spellings(token) | {session_id} | {key.read_text().strip()}
    for line in key.read_text().split():
        secrets |= {line, line[:24]} if len(line) >= 24 else set()
    files = [*(tmp_path / name / end for name in "mab" for end in ("out", "err")), *map(Path, audits)]
    written = {str(file): file.read_text() for file in files} | {"answers": "\n".join(told)}
    assert '"level": "debug"' in written[str(tmp_path / "a/err")], "the sidecar logs all it can"
    for where, text in written.items():
        assert "PRIVATE KEY" not in text, where
        assert not [secret for secret in secrets if secret in text], where

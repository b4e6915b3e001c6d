"""What the fuzzer feeds: every parser of bytes that come from a socket or a file.

A target takes bytes and a folder of its own. It may raise RhinoErrors, which is how a parser refuses. Anything else is
a finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from handover_manager.service import stored as handover_records
from replication_manager.protocol import events
from replication_manager.service import stored
from rhino_core import ids, metrics
from rhino_core.epochs import issued_ceiling
from rhino_core.errors import RhinoError
from rhino_core.folder import MARK, claim
from rhino_core.health import Health
from rhino_core.http_server import reply
from rhino_core.journal import Journal, acknowledged
from rhino_core.rpc import gate, greeting
from rhino_core.security import identity
from rhino_core.security.sources import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE, FolderSource, read_cluster_key
from rhino_core.settings import ManagerSettings
from spark_connector.doctor import checksums
from spark_connector.doctor import content as doctored
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.fuzz.fact_targets import FACT_TARGETS, SEPARATOR
from tests.fuzz.push_targets import push_handshakes, push_records
from tests.rhino_core import messages
from tests.worker_runtime.push.core.frames import Player, opened
from worker_runtime.storage.arriving.zips import zip_references
from worker_runtime.verify import changelog, snapshot

Target = Callable[[bytes, Path], None]
MESSAGES = [GetMessageClass(descriptor) for descriptor in messages.messages()]
MANAGER = ManagerSettings(Path("not used"))


def push_frames(data: bytes, folder: Path) -> None:
    """The first byte chooses how the bytes arrive."""
    direct, sizes = bool(data[:1] and data[0] & 1), (data[0] % 50 + 1) if data else 1
    player = Player(opened(1 << 20), unwanted=frozenset({1}))
    for start in range(1, len(data), sizes * 100):
        player.feed(data[start : start + sizes * 100], direct=direct)
    player.core.close()


def requests(data: bytes, folder: Path) -> None:
    """The first byte chooses the message. What cannot be read is refused before the gate."""
    kind = MESSAGES[data[0] % len(MESSAGES)] if data else MESSAGES[0]
    try:
        message = kind.FromString(data[1:])
    except DecodeError:
        return
    gate.check(message)


def names(data: bytes, folder: Path) -> None:
    text = data.decode(errors="surrogateescape")
    for parse in (ids.is_safe, ids.is_address, ids.is_host, identity.parse, ids.parse_name):
        try:
            parse(text)
        except RhinoError:
            continue


def zips(data: bytes, folder: Path) -> None:
    file = folder / "1_a.zip"
    file.write_bytes(data)
    try:
        zip_references(file)
    finally:
        snapshot.unzip(file, folder / "unzipped")


def changelogs(data: bytes, folder: Path) -> None:
    for parse in (
        changelog.parse,
        changelog.lineage,
        lambda content: changelog.with_lineage(content, ()),
        lambda content: changelog.check(content, lineage_wanted=False),
    ):
        try:
            parse(data)
        except RhinoError:
            continue


def examined_files(data: bytes, folder: Path) -> None:
    """Files of a checkpoint, as `rhino doctor` reads them. Each parser gets each part."""
    for part in data.split(SEPARATOR):
        for parse in (
            *(doctored.offset_entry, doctored.operator, doctored.schema, doctored.snapshot, doctored.table),
            *(doctored.query_id, doctored.query_id_within),
            lambda sums: checksums.hadoop_matches(sums, b"data"),
            lambda sums: checksums.spark_matches(sums, b"data"),
        ):
            try:
                parse(part)
            except RhinoError:
                continue


def checkpoints(data: bytes, folder: Path) -> None:
    metadata, commit, offset, *_ = [*data.split(SEPARATOR), b"", b""]
    for name, content in (("metadata", metadata), ("commits/3", commit), ("offsets/3", offset)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "state").mkdir(exist_ok=True)
    checkpoint = QueryCheckpoint(folder)
    for read in (checkpoint.logs, checkpoint.logged, checkpoint.settings, checkpoint.provider):
        try:
            read()
        except RhinoError:
            continue


def journals(data: bytes, folder: Path) -> None:
    """JSON objects by key, as the journal has them. A journal checks that its values are JSON."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(values, dict):
        values = {key: value for key, value in values.items() if key.count("/") >= 2}
        handover_records.restore(values, now=0.0, wall_offset_s=0.0)


def keys(data: bytes, folder: Path) -> None:
    file = folder / "cluster.key"
    file.touch(0o600)
    file.write_bytes(data)
    read_cluster_key(file)


def certificates(data: bytes, folder: Path) -> None:
    parts = [*data.split(SEPARATOR), b"", b""]
    for name, content in zip((AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE), parts, strict=False):
        (folder / name).touch(0o600)
        (folder / name).write_bytes(content)
    FolderSource(folder)


def greeters(data: bytes, folder: Path) -> None:
    assert len(greeting.token_in(data, folder)) == greeting.TOKEN_BYTES


def marks(data: bytes, folder: Path) -> None:
    """Small files of data folders."""
    (folder / MARK).write_bytes(data)
    (folder / "acknowledged").write_bytes(data)
    acknowledged(folder / "acknowledged")
    claim(folder, "sidecar")


def manager_records(data: bytes, folder: Path) -> None:
    """JSON values by key, as `journals`, of the replication manager. What it restores, it can go on with.

    Texts stand for the bytes of messages.
    """
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(values, dict):
        core = stored.restore(Journalled(values), MANAGER, now=0.0)
        core.handle(events.Tick(), now=1000.0)  # when all leases have ended
        for group in core.groups.values():
            stored.GROUPS.encode(group)


class Journalled(Journal):
    """A journal with these values, in memory."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values, self.generation, self.fresh = values, issued_ceiling(), False

    def items(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        for key, value in sorted(self._values.items()):
            if key.startswith(prefix):
                yield key, value.encode("latin-1", "replace") if isinstance(value, str) else value


def metrics_requests(data: bytes, folder: Path) -> None:
    registry = metrics.CollectorRegistry()
    answer = reply(lambda path, refusal: metrics.page(registry, Health(), path, refusal), data)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    assert b"Content-Length: %d" % len(body) in head or data.partition(b" ")[0] == b"HEAD"


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        *(push_frames, requests, names, zips, changelogs, checkpoints, examined_files),
        *(journals, keys, certificates, greeters, marks),
        *(push_records, push_handshakes, manager_records, metrics_requests),
        *FACT_TARGETS,
    )
}
JSON_TARGETS = {journals.__name__, manager_records.__name__}

"""`rhino doctor` without a checkpoint: this node, and the cluster as this node sees it. Data on stdout."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import resource
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rhino.cli import exit_codes
from rhino.cli.doctor_command import NodeOptions
from rhino.cli.options import CallOptions
from rhino.cli.output import say, say_json
from rhino.client.overview import Overview, WorkerView, fetch_overview
from rhino.client.verdict import Level, judge
from rhino_core.descriptors import ENOUGH
from rhino_core.errors import RhinoError
from rhino_core.security.certificates import Material
from rhino_core.security.sources import FolderSource
from rhino_core.version import version_line
from spark_connector.conf import PROVIDER_CLASSES, application_settings, recovery_conf

LEFT_DAYS = 14  # a certificate that ends sooner is named
LEFT_SHARE = 0.1  # of a disk, and of its inodes
REACH_S = 5.0  # for a connection to another worker
AT_ONCE = 100  # connections
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_START = "start the sidecar, or give its socket: --socket PATH"


@dataclass(frozen=True, slots=True)
class Check:
    """`way_out`: empty if all is well."""

    what: str
    text: str
    way_out: str = ""


def run_node_doctor(node: NodeOptions, call: CallOptions) -> int:
    checks = list(_checks(node, call.manager))
    if call.as_json:
        say_json([asdict(check) for check in checks])
    else:
        for check in checks:
            say(f"{'BAD' if check.way_out else 'ok':4}{check.what}: {check.text}")
            if check.way_out:
                say(f"    -> {check.way_out}")
    return exit_codes.FAILED if any(check.way_out for check in checks) else exit_codes.OK


def _checks(node: NodeOptions, manager: str) -> Iterator[Check]:
    yield Check("version", version_line())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= ENOUGH
    text = "no limit" if hard == resource.RLIM_INFINITY else f"{hard} at most, for the user of this command"
    yield Check("open files", text, "" if enough else f"raise LimitNOFILE of the services to {ENOUGH} or more")
    yield _socket(node.socket)
    for folder in (node.data_dir, node.spark_local_dir):
        if folder is not None:
            yield from _disk(folder)
    if node.data_dir is not None and node.spark_local_dir is not None:
        yield _links(node.data_dir, node.spark_local_dir)
    if node.certificates is not None:
        yield _certificate(node.certificates)
    if node.spark_conf is not None:
        yield from _spark_conf(node.spark_conf, manager)
    yield from _cluster(manager)


def _socket(path: Path) -> Check:
    what = f"socket {path}"
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return Check(what, "is no socket", _START)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(path))
    except OSError as error:
        way_out = _START
        if error.errno in (errno.EACCES, errno.EPERM):
            way_out = "run this, the sidecar and the executors as one Unix user"
        return Check(what, error.strerror or str(error), way_out)
    return Check(what, "a sidecar listens")


def _disk(folder: Path) -> Iterator[Check]:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        yield Check(f"folder {folder}", error.strerror or str(error), "make it, or mount its disk")
        return
    for kind, free, total in (("space", found.f_bavail, found.f_blocks), ("inodes", found.f_favail, found.f_files)):
        if total:  # some file systems count no inodes
            way_out = "" if free / total >= LEFT_SHARE else "delete files there, or use a larger file system"
            yield Check(f"{kind} of {folder}", f"{free / total:.0%} free", way_out)


def _links(data_dir: Path, spark_local_dir: Path) -> Check:
    """Tries a hard link, as the sidecar makes for each load."""
    what = f"hard links from {data_dir} to {spark_local_dir}"
    try:
        with tempfile.NamedTemporaryFile(dir=data_dir, prefix=".rhino-doctor-") as file:
            target = spark_local_dir / Path(file.name).name
            os.link(file.name, target)
            target.unlink()
    except OSError as error:
        way_out = "run the command as the user of the sidecar"
        if error.errno == errno.EXDEV:
            way_out = "put both on one file system and one mount: loads link files from one to the other"
        return Check(what, error.strerror or str(error), way_out)
    return Check(what, "work")


def _certificate(folder: Path) -> Check:
    what = f"certificate in {folder}"
    try:
        material: Material = FolderSource(folder).current()
    except RhinoError as error:
        return Check(what, str(error), "rhino cert verify; make a new one with `rhino cert`")
    now, begins = datetime.now(UTC), material.leaf.not_valid_before_utc
    if begins > now:
        return Check(what, f"begins to be valid at {begins:%Y-%m-%d %H:%M} UTC", "set the clock of this node")
    left = material.leaf.not_valid_after_utc - now
    way_out = "" if left.days >= LEFT_DAYS else "make a new one with `rhino cert`: the daemons read it by themselves"
    return Check(what, f"{material.identity}, until {material.leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC", way_out)


def _cluster(manager: str) -> Iterator[Check]:
    begun = time.monotonic()
    try:
        overview = fetch_overview(manager)
    except RhinoError as error:
        yield Check(f"manager {manager}", str(error), "start it, or give its address: --manager HOST:PORT")
        return
    yield Check(f"manager {manager}", f"answers after {(time.monotonic() - begun) * 1000:.0f} ms")
    yield _versions(overview)
    yield from _reach(overview.workers)
    verdict = judge(overview)
    if verdict.level is Level.OK:
        yield Check("cluster", "OK")
    for reason in verdict.reasons:
        yield Check("cluster", reason, "rhino status")
    if overview.insecure:
        text = "the manager runs with --insecure: whoever reaches it can change the cluster"
        yield Check("security", text, "make certificates, or a cluster key: rhino cert --help")


def _reach(workers: Iterable[WorkerView]) -> Iterator[Check]:
    """Connects to the port of every live worker, as the sidecar of this node does."""
    live = [worker for worker in workers if worker.state == "live"]
    errors = asyncio.run(_connected([worker.peer_address for worker in live]))
    failed = [(worker, error) for worker, error in zip(live, errors, strict=True) if error]
    if live:
        yield Check("workers", f"{len(live) - len(failed)} of {len(live)} live ones can be reached from here")
    for worker, error in failed:
        way_out = "look at names and firewalls: workers push state to each other, and the manager reaches this one"
        yield Check(f"worker {worker.worker_id} at {worker.peer_address}", error, way_out)


async def _connected(addresses: Sequence[str]) -> list[str]:
    """An error of each address; empty: it can be reached."""
    places = asyncio.Semaphore(AT_ONCE)

    async def connect(address: str) -> str:
        host, _, port = address.rpartition(":")
        async with places:
            try:
                async with asyncio.timeout(REACH_S):
                    _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
                writer.close()
            except TimeoutError:
                return f"no answer for {REACH_S:.0f} s"
            except OSError as error:
                return error.strerror or str(error)
        return ""

    return await asyncio.gather(*map(connect, addresses))


def _spark_conf(path: Path, manager: str) -> Iterator[Check]:
    """Compares a properties file of Spark with `rhino conf`."""
    what = f"settings in {path}"
    try:
        found = _properties(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        yield Check(what, str(error), "name the file that spark-submit reads, such as conf/spark-defaults.conf")
        return
    wanted, optional = application_settings(manager, jar="hdfs:///rhino.jar"), recovery_conf()
    if found.get(_PROVIDER) in PROVIDER_CLASSES.values():
        wanted[_PROVIDER] = found[_PROVIDER]
    compared = {"spark.plugins", "spark.rhino.manager", _PROVIDER}
    compared |= {name for name in found if name in optional or name.startswith("spark.sql.streaming.stateStore.")}
    wrong = [name for name in wanted if name in compared and found.get(name) != wanted[name]]
    for name in wrong:
        text = f"{name} is {found[name]!r}" if name in found else f"{name} is not set"
        yield Check(what, f"{text}; `rhino conf` has {wanted[name]!r}", "use that, unless you know why not")
    if not wrong:
        short = "" if found.keys() >= optional.keys() else ", without those for short recoveries"
        yield Check(what, f"as `rhino conf` has them{short}")


def _properties(text: str) -> dict[str, str]:
    """A name, then white space, = or :, then the value."""
    pairs = (re.split(r"\s*[=:\s]\s*", line.strip(), maxsplit=1) for line in text.splitlines())
    return {pair[0]: pair[1] if pair[1:] else "" for pair in pairs if pair[0] and pair[0][0] not in "#!"}


def _versions(overview: Overview) -> Check:
    found = {worker.rhino_version for worker in overview.workers} | {overview.rhino_version}
    found.discard("")
    way_out = "end the upgrade: the manager and all workers with one version" if len(found) > 1 else ""
    return Check("versions", f"manager and workers: {', '.join(sorted(found)) or 'not reported'}", way_out)

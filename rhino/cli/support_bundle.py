"""`rhino support-bundle`: what a maintainer asks for, as readable files in one archive, without secrets."""

from __future__ import annotations

import contextlib
import io
import json
import platform
import re
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from google.protobuf.json_format import MessageToDict

from rhino.cli import exit_codes
from rhino.cli.output import console, say
from rhino.cli.status import SECTIONS, render
from rhino.client.connection import worker_channel
from rhino.client.handover_client import HandoverClient
from rhino.client.overview import WorkerView, fetch_overview
from rhino_core.errors import AlreadyThereError, NoSpaceError, RhinoError, UnavailableError
from rhino_core.rpc.channel import call_sync
from rhino_core.version import version_line
from rhino_model.codec import plain
from rhino_pb import peer_pb2_grpc, sidecar_pb2

LOG_BYTES_MAX = 10_000_000  # the end of each log
RECORDS_MAX = 1000  # newest loads and commits of each sidecar
TIMEOUT_S = 10.0
ABOUT = """\
A report about a Rhino cluster, for its maintainers. It has names of queries, workers and hosts, numbers of files and
bytes, and the times of calls. It has no key, no certificate and no content of state. Logs are the ones that were named;
values behind words such as "password" or "token" are replaced in them. Spark's own logs may have values of rows in
errors: read them before you send this.

status.txt, status.json    the state of the cluster
handovers.json             the newest handovers
history.json               what people have done
decisions.json             what adaptation has decided
archive.json               how far the archive is
workers/                   of each sidecar: its figures, and its newest loads and commits
logs/                      the end of each log
not-there.txt              what could not be asked, and why
"""
SECRET = re.compile(
    r"""(?isx)( [\w.-]* (?:secret|password|passwd|token|credential|(?:access|account|private)[_.-]?key) [\w.-]*
    \\* ["']? \s* [=:] \s* ) (?: (\\* ["']) .*? (?<!\\) \2 | [^\s,;}&]+ )"""  # quotes of JSON in JSON are escaped
)
PEM = re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\Z)", re.DOTALL)


class Bundle:
    """Collects files, then writes them. `missing`: what could not be asked."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {"about.txt": ABOUT}
        self.missing: list[str] = []

    def ask(self, name: str, made: Callable[[], str]) -> RhinoError | OSError | None:
        """Adds a file. An error of Rhino is noted instead, and returned."""
        try:
            self.files[name] = made()
        except (RhinoError, OSError) as error:
            self.missing.append(f"{name}: {error}")
            return error
        return None

    def write(self, path: Path) -> None:
        """Raises AlreadyThereError and NoSpaceError. Only this user can read the file."""
        files = self.files | ({"not-there.txt": "\n".join(self.missing) + "\n"} if self.missing else {})
        folder, now = path.name.removesuffix(".tar.gz"), time.time()
        try:
            path.touch(0o600, exist_ok=False)
            with tarfile.open(path, "w:gz") as out:
                for name, text in files.items():
                    data = text.encode()
                    member = tarfile.TarInfo(f"{folder}/{name}")
                    member.size, member.mtime, member.mode = len(data), int(now), 0o600
                    out.addfile(member, io.BytesIO(data))
        except FileExistsError as error:
            raise AlreadyThereError(f"{path} is there already: name another file with --output") from error
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next try with this name is refused
                path.unlink(missing_ok=True)
            raise NoSpaceError(f"{path} cannot be written: {error}") from error


def run_support_bundle(manager: str, output: Path | None, logs: list[Path]) -> int:
    bundle, workers = Bundle(), list[WorkerView]()
    bundle.files["versions.txt"] = f"{version_line()}\nPython {platform.python_version()} on {platform.platform()}\n"

    def status() -> str:
        overview = fetch_overview(manager, timeout_s=TIMEOUT_S)
        workers.extend(overview.workers)
        text = io.StringIO()
        render(overview, console(file=text), tuple(SECTIONS))
        bundle.files["status.txt"] = text.getvalue()
        return _json(overview)

    failure = bundle.ask("status.json", status)
    if not isinstance(failure, UnavailableError):
        with HandoverClient(manager, timeout_s=TIMEOUT_S) as client:
            for name, asked in (
                ("handovers", client.list),
                ("history", client.history),
                ("decisions", client.decisions),
                ("archive", client.archive),
            ):
                bundle.ask(f"{name}.json", lambda asked=asked: _json(asked()))  # type: ignore[misc]
    for worker in workers:
        name = re.sub(r"[^\w.-]", "_", worker.worker_id)
        bundle.ask(f"workers/{name}.json", lambda worker=worker: _described(worker))  # type: ignore[misc]
    for at, log in enumerate(logs):
        bundle.ask(f"logs/{at}-{log.name}", lambda log=log: _log(log))  # type: ignore[misc]
    path = output or Path(time.strftime("rhino-support-%Y%m%d-%H%M%S.tar.gz"))
    bundle.write(path)
    for missing in bundle.missing:
        say(f"not there: {missing}", error=True)
    say(str(path))
    if failure is None:
        return exit_codes.OK
    return exit_codes.of_error(failure) if isinstance(failure, RhinoError) else exit_codes.FAILED


def _json(value: object) -> str:
    return json.dumps(plain(value), indent=1) + "\n"


def _described(worker: WorkerView) -> str:
    request = sidecar_pb2.DescribeRequest(prepares_max=RECORDS_MAX, commits_max=RECORDS_MAX)
    doing = f"describe worker {worker.worker_id} at {worker.peer_address}"
    with worker_channel(worker.worker_id, worker.peer_address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        reply = call_sync(doing, lambda: stub.Describe(request, timeout=TIMEOUT_S))
    return json.dumps(MessageToDict(reply, preserving_proto_field_name=True), indent=1) + "\n"


def _log(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - LOG_BYTES_MAX, 0))
        text = file.read().decode(errors="replace")
    return SECRET.sub(r"\1***", PEM.sub("(a key or certificate was here)", text))

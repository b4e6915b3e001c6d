"""`rhino ui` beside a real manager and real sidecars, with certificates."""

from __future__ import annotations

import http.client
import json
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rhino.client import connection
from rhino_core.security.choice import client_transport
from rhino_core.security.sources import new_cluster_key
from tests import forked
from tests.rhino_core.support.metrics import free_port

pytestmark = pytest.mark.timeout(180)
# Whatever runs the tests may ignore Ctrl-C.
INTERRUPTIBLE = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{forked.RHINO}"


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, Path]]:
    """A manager and two sidecars without Spark. Yields the address of the manager, and the cluster's key."""
    key = folder / "cluster.key"
    new_cluster_key(key)
    connection.use(client_transport("", str(key)))
    common = ("--cluster-key", str(key), "--listen", "127.0.0.1:0")
    log = folder / "daemons.err"
    with tempfile.TemporaryDirectory(prefix="rhino-") as sockets, ExitStack() as running:
        options = ("--bootstrap", "--data-dir", str(folder / "m"), "--audit-log", str(folder / "manager.audit"))
        manager = running.enter_context(forked.daemon("manager", *common, *options, log=log))["address"]
        for name in ("worker-a", "worker-b"):
            (place := Path(sockets) / name).mkdir()
            there = ("--data-dir", str(folder / name), "--socket", str(place / "s"), "--manager", manager)
            named = ("--worker-id", name, "--host", f"host-{name}")
            running.enter_context(forked.daemon("sidecar", *common, *named, *there, log=log))
        yield manager, key


@contextmanager
def page(folder: Path, *arguments: str) -> Iterator[tuple[str, str]]:
    """`rhino ui`, ended by Ctrl-C. Yields its origin and token."""
    with (folder / "ui.err").open("w") as errors:
        process = forked.Popen(INTERRUPTIBLE, "ui", "--port", "0", *arguments, stderr=errors.fileno())
        try:
            origin, _, token = process.stdout.readline().strip().partition("/#token=")
            yield origin, token
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            process.stdout.close()


def asked(origin: str, token: str, path: str, body: object = None) -> Any:
    """The answer as JSON; of the stream the first document."""
    client = http.client.HTTPConnection(origin.removeprefix("http://"), timeout=20)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Origin": origin}
    client.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
    answer = client.getresponse()
    line = answer.readline().decode()
    client.close()
    assert answer.status == 200, line
    return json.loads(line.removeprefix("data: "))


def test_the_page_acts_with_the_certificate_of_its_process_and_both_write_it_down(tmp_path: Path) -> None:
    with cluster(tmp_path) as (manager, key):
        access = ("--manager", manager, "--cluster-key", str(key))
        with page(tmp_path, *access, "--interval-s", "0.2", "--audit-log", str(tmp_path / "ui.audit")) as (
            origin,
            token,
        ):
            shown: dict[str, Any] = {}
            while not shown.get("workers"):
                shown = asked(origin, token, "/data/live")
            status = forked.rhino("status", "--json", *access)
            planned = asked(origin, token, "/data/plan", {"kind": "drain", "worker": "worker-a"})
            assert asked(origin, token, "/data/run", {"id": planned["id"]}) == {"done": "drain"}
    workers = json.loads(status.stdout)["workers"]
    names = ("worker_id", "host", "zone", "state", "peer_address", "stored_bytes", "draining", "disk", "rhino_version")
    assert [[one[name] for name in names] for one in shown["workers"]] == [
        [one[name] for name in names] for one in workers
    ]
    managers = [json.loads(line) for line in (tmp_path / "manager.audit").read_text().splitlines()]
    (drain,) = [line for line in managers if line["method"].endswith("/DrainWorker")]
    assert re.fullmatch(r"rhino://[^/]+/operator/.+", drain["principal"])
    assert (drain["names"], drain["outcome"]) == ({"worker": "worker-a"}, "ok")
    (line,) = map(json.loads, (tmp_path / "ui.audit").read_text().splitlines())
    assert (line["method"], line["names"], line["outcome"]) == ("page drain", {"worker": "worker-a"}, "ok")
    written = "".join(file.read_text(errors="replace") for file in tmp_path.iterdir() if file.is_file())
    assert "page drain" in written
    assert token not in written
    assert "Traceback" not in (tmp_path / "ui.err").read_text()


def test_a_page_for_the_network_without_encryption_is_a_warning(tmp_path: Path) -> None:
    with page(tmp_path, "--host", "0.0.0.0", "--manager", f"127.0.0.1:{free_port()}") as (origin, _):
        assert "0.0.0.0" not in origin, "nobody can open that"
    assert "warning: --host 0.0.0.0 without --tls-cert" in (tmp_path / "ui.err").read_text()


def test_a_port_in_use_is_exit_code_4_and_half_a_certificate_2(tmp_path: Path) -> None:
    with page(tmp_path, "--manager", "127.0.0.1:1") as (origin, _):
        done = forked.rhino("ui", "--port", origin.rpartition(":")[2])
    assert (done.returncode, "choose another" in done.stderr, done.stdout) == (4, True, "")
    done = forked.rhino("ui", "--tls-cert", "x")
    assert (done.returncode, "--tls-key" in done.stderr) == (2, True)


@pytest.mark.parametrize("module", ["starlette", "uvicorn"])
def test_a_missing_extra_is_named(module: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; sys.argv[1:] = ['ui']\nfrom rhino.cli.main import main; main()"
    done = forked.run(code)
    assert done.returncode == 3
    assert "pip install 'rhino-state[ui]'" in done.stderr

"""The page over real HTTP, of a real server."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rhino.cli.main import app
from rhino.page.guard import HEADERS
from rhino.page.serving import Page, PageSettings
from rhino_core.errors import InvalidSettingError, UnavailableError
from rhino_core.security.certificates import Authority
from rhino_core.security.folders import write_folder
from rhino_core.security.identity import Identity, Role
from rhino_core.security.sources import new_cluster_key, read_cluster_key
from tests.handover_manager.cluster import BatchLoad
from tests.handover_manager.support.service import JOB, Scene
from tests.rhino.page.imagined import BAD_NAME, small
from tests.rhino.page.served import Served, served
from tests.rhino_core.support.metrics import free_port

pytestmark = pytest.mark.timeout(120)
DATA = ("/data/live", "/data/worker?id=a", "/data/plan", "/data/run", "/data/nothing")


@pytest.fixture
def alone() -> Iterator[Served]:
    """A page without a manager."""
    with served(f"127.0.0.1:{free_port()}") as page:
        yield page


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 0.1)
    made = Scene(tmp_path / "journal")
    await made.open()
    yield made
    await made.close()


async def rhino(scene: Scene, *arguments: str) -> Any:
    """The JSON of a command."""
    arguments = (*arguments, "--json", "--manager", scene.manager.address)
    return json.loads((await asyncio.to_thread(CliRunner().invoke, app, arguments)).stdout)


def test_files_are_for_everybody_with_the_headers_that_protect_them(alone: Served) -> None:
    page = alone.ask("/", authorization=None)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for path in ("/", "/page.js", "/page.css", "/charts.js", "/nothing"):
        answer = alone.ask(path, authorization=None)
        assert answer.headers.items() >= HEADERS.items()
        assert answer.headers["cache-control"] == "no-cache"
        assert "server" not in answer.headers
    assert alone.ask("/../app.py").status == alone.ask("/%2e%2e/app.py").status == 404


def test_the_page_has_no_script_or_style_of_its_own_and_nothing_from_elsewhere(alone: Served) -> None:
    text = alone.ask("/").text
    assert text.count("<script") == text.count('<script type="module" src="page.js">') == 1
    assert "<style" not in text
    assert " style=" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    for name in ("page.js", "net.js", "dom.js", "charts.js", "views.js", "actions.js"):
        source = alone.ask(f"/{name}").text
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://"):
            assert word not in source, name


def test_data_needs_the_token_and_is_not_stored(alone: Served) -> None:
    for path, given in product(DATA, (None, "Bearer wrong", f"Basic {alone.token}")):
        answer = alone.ask(path, authorization=given)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers.items() >= HEADERS.items()
    for path in DATA:
        assert alone.ask(f"{path}{'&' if '?' in path else '?'}token={alone.token}", authorization=None).status == 401


def test_another_host_or_origin_gets_nothing(alone: Served) -> None:
    assert alone.ask("/", host="evil.example").status == 421
    assert alone.ask("/data/worker?id=a", host="evil.example").status == 421
    drain = {"kind": "drain", "worker": "a"}
    for path in ("/data/plan", "/data/run"):
        assert alone.ask(path, drain, origin="http://evil.example").status == 403
        assert alone.ask(path, drain, origin=None).status == 403
        assert alone.ask(path, drain, content_type="text/plain").status == 415
        assert alone.ask(path).status == 404, "GET"


def test_a_silent_manager_and_bad_requests_are_told(alone: Served) -> None:
    first = next(alone.documents())
    assert alone.page.watcher.manager in first["page"]["problem"]
    assert alone.ask("/data/plan", {"kind": "drain", "worker": "a"}).status == 503
    for body in (b"{", b"x" * 70_000, b'"text"', b"\xff"):
        answer = alone.ask("/data/plan", body)
        assert (answer.status, answer.content["error"]["kind"]) == (400, "InvalidRequestError")
    assert alone.ask("/data/run", {"id": "x"}).content["error"]["kind"] == "UnknownError"


def test_names_travel_as_texts_in_one_event(alone: Served) -> None:
    alone.page.watcher.show(small())
    found = alone.until(lambda document: True, "the imagined cluster")
    assert [query["query"] for query in found["queries"]] == ["counts", BAD_NAME]
    assert alone.page.watcher.frame.count(b"\n") == 2
    assert alone.ask("/data/worker?id=a").content["queries"][0]["nodes"] == ["0/0-1"]


def test_a_read_only_page_has_no_actions(tmp_path: Path) -> None:
    with served(f"127.0.0.1:{free_port()}", read_only=True) as page:
        assert page.ask("/data/plan", {"kind": "drain", "worker": "a"}).status == 403
        assert next(page.documents())["page"]["read_only"] is True


def test_refusals_are_audited_without_the_token(tmp_path: Path) -> None:
    with served(f"127.0.0.1:{free_port()}", audit_log=str(tmp_path / "audit")) as page:
        page.ask("/data/live", authorization="Bearer wrong")
        page.ask("/data/run", {"id": "x"}, origin="http://evil.example")
    text = (tmp_path / "audit").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert (
        lines[0].items() >= {"method": "page", "names": {"path": "/data/live"}, "outcome": "AccessDeniedError"}.items()
    )
    assert lines[0]["peer"].startswith("ipv4:127.0.0.1:")
    assert page.token not in text


def test_settings_that_cannot_be_are_named(tmp_path: Path) -> None:
    def settings(**more: Any) -> PageSettings:
        return PageSettings("127.0.0.1:1", more.pop("host", "127.0.0.1"), more.pop("port", 0), 1.0, **more)

    with pytest.raises(InvalidSettingError, match="give both"):
        Page(settings(tls_cert="cert"))
    (tmp_path / "bad").write_text("no certificate")
    with pytest.raises(InvalidSettingError, match="--tls-cert"):
        Page(settings(tls_cert=str(tmp_path / "bad"), tls_key=str(tmp_path / "bad")))
    with pytest.raises(UnavailableError, match=r"--host 192\.0\.2\.1 --port 0"):
        Page(settings(host="192.0.2.1"))
    first = Page(settings())
    port = int(first.address.partition("/#")[0].rpartition(":")[2])
    with pytest.raises(UnavailableError, match=f"--port {port}"):
        Page(settings(port=port))


def test_https_by_a_certificate_of_ones_own(tmp_path: Path) -> None:
    new_cluster_key(tmp_path / "key")
    authority = Authority.of_cluster_key(read_cluster_key(tmp_path / "key"))
    write_folder(
        tmp_path / "tls", authority.issue(Identity(authority.cluster, Role.MANAGER, "127.0.0.1"), dt.timedelta(1))
    )
    tls = {"tls_cert": str(tmp_path / "tls/tls.crt"), "tls_key": str(tmp_path / "tls/tls.key")}
    with served(f"127.0.0.1:{free_port()}", **tls) as page:
        assert page.origin.startswith("https://")
        context = ssl.create_default_context(cafile=str(tmp_path / "tls/ca.crt"))
        context.check_hostname = False
        host, _, port = page.host.partition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=20, context=context)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()


async def test_the_page_of_a_real_manager_has_the_figures_of_the_commands(scene: Scene) -> None:
    with served(scene.manager.address) as page:
        await asyncio.to_thread(page.until, lambda found: found["workers"], "the manager has answered")
        measured = BatchLoad({0: 1.5, 1: 0.5}, rows=70, batch_s=2.0, trigger_s=5.0, lags={"topic": (90, 70)})
        batch, shown = 0, dict[str, Any]()
        while not shown.get("queries") or not shown["queries"][0]["batches"]:  # the first ones may be too early
            await scene.driver.logged(JOB, batch, dict.fromkeys((0, 1), scene.sidecars["w1"]), load=measured)
            batch += 1
            shown = await asyncio.to_thread(page.until, lambda found: True, "a document")

        def complete(found: dict[str, Any]) -> bool:
            (query,) = found["queries"]
            return bool((query["batch_id"], query["full"], query["imbalance"]) == (batch - 1, 2, 3.0))

        shown = await asyncio.to_thread(page.until, complete, "the newest batch is there")
        status = await rhino(scene, "status")
    assert shown["verdict"] == status["verdict"]
    moving = {"last_heartbeat_ago_s", "batch_ago_s", "batch_interval_s"}
    for found, source in zip(shown["workers"], status["workers"], strict=True):
        assert {k: v for k, v in found.items() if k in source and k not in moving} == {
            k: v for k, v in source.items() if k not in moving | {"scrub"}
        }
    (query,), (job,) = shown["queries"], status["jobs"]
    assert query["batch_id"] == job["batch_id"] == batch - 1
    assert query["batches"][-1][2:] == [2.0, 5.0, 70, 90.0]
    assert (query["imbalance"], query["lags"], query["virtual_nodes"]) == (3.0, job["lags"], len(job["virtual_nodes"]))
    assert query["full"] == len(status["groups"]) == 2
    assert shown["workers"][0]["task_s"] == sum(node["task_s"] for node in job["virtual_nodes"])
    assert (shown["adaptation"], shown["archive"]) == ("observe", None)


async def test_a_move_is_planned_shown_carried_out_once_and_cancelled(scene: Scene, tmp_path: Path) -> None:
    target = scene.stranger(0)
    scene.sidecars[target].catches_up = False
    await scene.run_batch()
    with served(scene.manager.address, audit_log=str(tmp_path / "audit")) as page:
        asked = {"kind": "move", "job": JOB, "virtual_nodes": "0/0", "target": target}
        planned = (await asyncio.to_thread(page.ask, "/data/plan", asked)).content
        assert [(move["virtual_node"], move["target"]) for move in planned["plan"]["moves"]] == [("0/0", target)]
        assert await rhino(scene, "handover", "list") == [], "a plan changes nothing"
        begun = await asyncio.to_thread(page.ask, "/data/run", {"id": planned["id"]})
        assert (begun.status, begun.content) == (200, {"done": "move"})
        again = await asyncio.to_thread(page.ask, "/data/run", {"id": planned["id"]})
        assert again.status == 404
        (listed,) = await rhino(scene, "handover", "list")
        shown = await asyncio.to_thread(page.until, lambda found: found["handovers"], "it is on the page")
        assert (shown["handovers"][0]["handover_id"], shown["handovers"][0]["phase"]) == (
            listed["handover_id"],
            "preparing",
        )
        cancel = {"kind": "cancel", "handover_id": listed["handover_id"]}
        planned = (await asyncio.to_thread(page.ask, "/data/plan", cancel)).content
        assert planned["handover"]["cancellable"] is True
        assert (await asyncio.to_thread(page.ask, "/data/run", {"id": planned["id"]})).status == 200
        await asyncio.to_thread(page.until, lambda found: found["handovers"][0]["phase"] == "cancelled", "the end")
        unknown = await asyncio.to_thread(page.ask, "/data/plan", cancel | {"handover_id": "nobody"})
        assert (unknown.status, unknown.content["error"]["kind"]) == (404, "UnknownError")
        refused = await asyncio.to_thread(page.ask, "/data/plan", asked | {"target": "w9"})
        assert (refused.status, "w9" in refused.content["error"]["message"]) == (404, True)
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(line["method"], line["outcome"]) for line in lines] == [("page move", "ok"), ("page cancel", "ok")]
    assert lines[0]["names"] == {"job": JOB, "virtual_nodes": "0/0", "target": target}
    assert lines[0]["principal"].startswith("uid:")


async def test_a_drain_shows_its_obstacles_and_can_be_ended(scene: Scene) -> None:
    await scene.run_batch()
    with served(scene.manager.address) as page:

        def carried_out(asked: dict[str, str]) -> dict[str, Any]:
            planned: dict[str, Any] = page.ask("/data/plan", asked).content
            assert page.ask("/data/run", {"id": planned["id"]}).status == 200
            return planned

        planned = await asyncio.to_thread(carried_out, {"kind": "drain", "worker": "w1"})
        assert planned["plan"]["moves_total"] == 2
        assert planned["drain"]["blockers"]
        shown = await asyncio.to_thread(page.until, lambda found: found["drains"], "the drain is shown")
        status = await rhino(scene, "status")
        assert shown["drains"][0]["worker"] == status["drains"][0]["worker"] == "w1"
        (worker,) = [one for one in shown["workers"] if one["worker_id"] == "w1"]
        assert (worker["draining"], worker["safe_to_remove"]) == (True, shown["drains"][0]["safe_to_remove"])
        await asyncio.to_thread(carried_out, {"kind": "end drain", "worker": "w1"})
        shown = await asyncio.to_thread(page.until, lambda found: not found["drains"], "the end of the drain")
        actions = await rhino(scene, "history")
        assert shown["actions"] == actions[::-1]
        assert [action["kind"] for action in actions] == ["drain", "handover", "end of drain"]

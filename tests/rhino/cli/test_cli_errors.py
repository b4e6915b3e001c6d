"""What people type wrong, and what is wrong around them: one line that begins with `error:`, the documented exit code,
no stack trace. Each case is a process of its own."""

from __future__ import annotations

import http.server
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked
from tests.forked import daemon, rhino
from tests.nightly import few

USAGE, REFUSED, UNREACHABLE, FAILED = 2, 3, 4, 1


def require_one_line(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    *logs, last = done.stderr.strip().splitlines()
    assert last.startswith("error: "), done.stderr
    assert all(line.startswith("{") for line in logs), "other lines than logs"
    for word in words:
        assert word in last


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("manager")
    with daemon("manager", "--bootstrap", "--listen", "127.0.0.1:0", "--data-dir", str(folder)) as ready:
        yield ready["address"]


@pytest.fixture(scope="module")
def sidecar(manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("sidecar")
    places = ("--data-dir", str(folder / "data"), "--socket", str(folder / "s"), "--listen", "127.0.0.1:0")
    with daemon("sidecar", "--worker-id", "w1", "--host", "h", "--manager", manager, *places) as ready:
        yield ready


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["status", "--manager", ""], "--manager ''"),
        (["status", "--section", "nowhere"], "--section 'nowhere'"),
        (["status", "--watch", "--check"], "--watch and --check"),
        (["status", "--bogus"], "No such option: --bogus; see `rhino status --help`"),
        (["drain"], "Missing argument 'WORKER'; see `rhino drain --help`"),
        (["status", "--manager", "localhost:99999"], "host:port"),
        (["status", "--manager", "a b:1"], "host:port"),
        (["status", "--timeout-s", "nan"], "--timeout-s nan"),
        (["status", "--timeout-s", "0"], "--timeout-s 0"),
        (["scrub", "--wait", "--repair-wait-s", "inf"], "--repair-wait-s inf"),
        (["handover", "rebalance", "--job", "j", "--start-in-s", "nan"], "--start-in-s nan"),
        (["handover", "rebalance", "--job", "j", "--start-in-s", "inf"], "--start-in-s inf"),
        (["handover", "move", "0/1", "--job", "j", "--to", "w", "--start-in-s", "1e30"], "--start-in-s 1e+30"),
        (["handover", "move", "0/1", "--job", "j", "--to", "w", "--deadline-s", "nan"], "--deadline-s nan"),
        (["adopt", "{tmp}", "--integration", "tunnel"], "--integration 'tunnel': must be one of provider, checkpoint"),
        (["plan", "move", "0/1,0/2", "--job", "j", "--to", "w"], "virtual node '0/1,0/2'"),
        (["drain", "w", "--deadline-s", "-1"], "--deadline-s -1"),
        (["drain", "w", "--timeout-s", "nan"], "--timeout-s nan"),
        (["manager", "--data-dir", "{tmp}/m", "--log-level", "foo"], "--log-level 'foo'"),
        (["manager", "--data-dir", "{tmp}/m", "--lease-s", "inf"], "--lease-s inf"),
        (["manager", "--data-dir", "{tmp}/m", "--lag-cap-s", "nan"], "--lag-cap-s nan"),
        (["manager", "--data-dir", "{tmp}/file"], "{tmp}/file"),
        (["manager", "--data-dir", "{tmp}/file/below"], "{tmp}/file/below"),
        (["manager", "--data-dir", "{tmp}/" + "x" * 300], "File name too long"),
        (["manager", "--data-dir", "/proc/rhino", "--bootstrap"], "/proc/rhino"),
        (["manager", "--data-dir", "{tmp}/m", "--bootstrap", "--listen", "192.0.2.7:7461"], "192.0.2.7:7461"),
        (["manager", "--data-dir", "{tmp}/m", "--bootstrap", "--listen", "no.such.host.invalid:0"], "no.such.host"),
        (["sidecar", "--data-dir", "{tmp}/s", "--log-level", "foo"], "--log-level 'foo'"),
        (["sidecar", "--data-dir", "{tmp}/file", "--socket", "{tmp}/x"], "{tmp}/file"),
        (["sidecar", "--data-dir", "{tmp}/file/below", "--socket", "{tmp}/x"], "{tmp}/file/below"),
        (["sidecar", "--data-dir", "/proc/rhino", "--socket", "{tmp}/x"], "/proc/rhino"),
        (["sidecar", "--data-dir", "{tmp}/" + "x" * 300, "--socket", "{tmp}/x"], "File name too long"),
        (["sidecar", "--data-dir", "{tmp}/s", "--socket", "{tmp}/x", "--listen", "192.0.2.7:0"], "192.0.2.7:0"),
        (
            ["sidecar", "--data-dir", "{tmp}/s", "--socket", "{tmp}/x", "--commit-timeout-s", "inf"],
            "--commit-timeout-s inf",
        ),
        (["sidecar", "--data-dir", "{tmp}/s", "--socket", "{tmp}/x", "--worker-id", "a\nb"], "--worker-id 'a\\nb'"),
        (
            ["sidecar", "--data-dir", "{tmp}/s", "--socket", "{tmp}/x", "--worker-id", "\x1b[2J"],
            "--worker-id '\\x1b[2J'",
        ),
        (["sidecar", "--data-dir", "{tmp}/s", "--socket", "{tmp}/" + "x" * 120], "107 are possible"),
        (["sidecar", "--data-dir", "{tmp}/s", "--socket", "{tmp}/folder"], "no socket"),
        (["sidecar", "--data-dir", "{tmp}/s", "--socket", "{tmp}/file"], "no socket"),
        (["sidecar", "--data-dir", "{tmp}/s", "--socket", "{tmp}/file/below"], "{tmp}/file/below"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: list[str], word: str) -> None:
    (tmp_path / "file").write_text("not ours")
    (tmp_path / "folder").mkdir()
    local = ["--host", "h"] + ([] if "--listen" in arguments else ["--listen", "127.0.0.1:0"])
    given = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    done = rhino(*given, *(local if arguments[0] == "sidecar" else []))
    require_one_line(done, USAGE, word.replace("{tmp}", str(tmp_path)))
    assert (tmp_path / "file").read_text() == "not ours"
    assert not (tmp_path / "m" / "CURRENT").exists() or "--bootstrap" in arguments


@pytest.mark.parametrize("command", ["manager", "sidecar"])
def test_an_empty_data_dir_is_not_the_current_folder(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = rhino(command, "--data-dir", "")
    assert (done.returncode, "Traceback" in done.stderr) == (USAGE, False)
    assert "--data-dir ''" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[b"status", b"--manager", b"\xff:1"], [b"drain", b"w\xff"]])
def test_arguments_that_are_no_utf8(arguments: list[bytes]) -> None:
    require_one_line(rhino(*arguments), USAGE, "UTF-8")


@pytest.mark.parametrize(
    "arguments", [["adopt", "{tmp}/file"], ["adopt", "{tmp}"], ["release", "{tmp}/file"], ["rewind", "{tmp}/file"]]
)
def test_what_is_no_checkpoint(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "file").write_text("not ours")
    done = rhino(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    require_one_line(done, REFUSED, "no query checkpoint")


def test_what_is_no_data_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not ours")
    for name in ("file", "file/below", "nothing"):
        require_one_line(rhino("verify", "--job", "j", "--data-dir", str(tmp_path / name)), REFUSED, name)


def test_taken_addresses(tmp_path: Path, manager: str) -> None:
    port = manager.rpartition(":")[2]
    base = ("sidecar", "--host", "h", "--data-dir", str(tmp_path / "s"), "--socket", str(tmp_path / "x"))
    cases = (
        ("manager", "--bootstrap", "--data-dir", str(tmp_path / "m"), "--listen", manager),
        (*base, "--listen", manager),
        (*base, "--listen", "127.0.0.1:0", "--push-port", port),
        (*base, "--listen", "127.0.0.1:0", "--metrics-port", port),
    )
    for case in cases:
        require_one_line(rhino(*case), UNREACHABLE, port)


def test_a_manager_beside_another_one_on_its_folder(tmp_path: Path) -> None:
    arguments = ("manager", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    with daemon(*arguments, "--bootstrap"):
        require_one_line(rhino(*arguments), UNREACHABLE, "another manager")


def test_a_damaged_journal(tmp_path: Path) -> None:
    arguments = ("manager", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    with daemon(*arguments, "--bootstrap"):
        pass
    next(tmp_path.glob("MANIFEST-*")).write_bytes(b"nothing of use")
    require_one_line(rhino(*arguments), FAILED, "damaged", "--bootstrap")


def test_a_damaged_index(tmp_path: Path, manager: str) -> None:
    places = ("--data-dir", str(tmp_path / "data"), "--socket", str(tmp_path / "s"), "--listen", "127.0.0.1:0")
    arguments = ("sidecar", "--worker-id", "w2", "--host", "h", "--manager", manager, *places)
    with daemon(*arguments):
        pass
    index = tmp_path / "data" / "index"
    (acknowledged,) = index.glob("acknowledged")
    (manifest,) = index.glob("MANIFEST-*")
    for file, content in ((acknowledged, b"no number"), (manifest, b"nothing of use"), (index / "CURRENT", b"")):
        good = file.read_bytes()
        file.write_bytes(content)
        require_one_line(rhino(*arguments), FAILED, "the index is damaged", "--empty-store")
        file.write_bytes(good)
    manifest.unlink()
    require_one_line(rhino(*arguments), FAILED, "the index is damaged", "--empty-store")
    with daemon(*arguments, "--empty-store") as ready:
        assert ready["worker_id"] == "w2"


def test_a_manager_without_a_journal_leaves_none_behind(tmp_path: Path) -> None:
    done = rhino("manager", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    require_one_line(done, REFUSED, "--bootstrap")
    assert not (tmp_path / "CURRENT").exists()


@pytest.mark.parametrize("command", few([["scrub"], ["drain", "w1"], ["status"], ["plan", "rebalance", "--job", "j"]]))
def test_the_address_of_a_sidecar_is_not_the_managers(command: list[str], sidecar: dict[str, str]) -> None:
    require_one_line(rhino(*command, "--manager", sidecar["peer_address"]), UNREACHABLE, sidecar["peer_address"])


def test_the_error_names_the_sidecar_that_answers_instead(sidecar: dict[str, str]) -> None:
    done = rhino("status", "--manager", sidecar["peer_address"])
    require_one_line(done, UNREACHABLE, "no Rhino manager at", "a Rhino sidecar answers there")


def test_a_manager_without_a_port_has_the_default_port() -> None:
    require_one_line(rhino("status", "--manager", "no.such.invalid"), UNREACHABLE, "no.such.invalid:7461", "resolved")


@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_the_error_names_an_http_server_that_answers_instead(path: str) -> None:
    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = b"# HELP\nrhino_workers 1\n" if path == "/metrics" else b"hello"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Keeps the output of the tests clean."""

    expected = "the metrics port of a manager" if path == "/metrics" else "an HTTP server answers there"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = rhino("status", "--manager", f"127.0.0.1:{server.server_port}")
        server.shutdown()
    require_one_line(done, UNREACHABLE, expected)


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (["status", "--manager", "127.0.0.1:1", "--json"], "UnavailableError", UNREACHABLE),
        (["status", "--timeout-s", "0", "--json"], "InvalidSettingError", USAGE),
        (["status", "--bogus", "--json"], "UsageError", USAGE),
    ],
)
def test_errors_are_json_with_json(arguments: list[str], kind: str, code: int) -> None:
    done = rhino(*arguments)
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["exit_code"], error["kind"], done.stdout) == (code, code, kind, "")
    assert error["message"]


@pytest.mark.parametrize("command", [["forget", "--job", "{job}"], ["rewind", "{tmp}/file"], ["release", "{tmp}/file"]])
def test_what_does_not_exist_is_refused_before_anybody_is_asked(
    tmp_path: Path, manager: str, command: list[str]
) -> None:
    (tmp_path / "file").write_text("not ours")
    given = [part.replace("{tmp}", str(tmp_path)).replace("{job}", "nope") for part in command]
    where = ["--manager", manager] if command[0] != "release" else []
    require_one_line(rhino(*given, *where), REFUSED)


def test_a_reader_that_ends_is_no_error(manager: str) -> None:
    done = forked.run(forked.RHINO, "status", "--manager", manager, unread=True)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_port_that_speaks_something_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        require_one_line(rhino("status", "--timeout-s", "1", "--manager", address), UNREACHABLE, address)


def test_a_second_sidecar_does_not_take_the_socket(sidecar: dict[str, str], tmp_path: Path, manager: str) -> None:
    places = ("--data-dir", str(tmp_path / "data"), "--socket", sidecar["socket"], "--listen", "127.0.0.1:0")
    done = rhino("sidecar", "--worker-id", "w2", "--host", "h", "--manager", manager, *places)
    require_one_line(done, REFUSED, "another process answers", sidecar["socket"])
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(sidecar["socket"])

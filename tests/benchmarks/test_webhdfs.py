"""The WebHDFS server over HTTP: what Hadoop's client asks of it, and what the client relies on."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from benchmarks.webhdfs import serving


def call(address: str, name: str, operation: str, method: str = "GET", body: bytes | None = None) -> bytes:
    url = f"http://{address}/webhdfs/v1{name}?op={operation}"
    with urllib.request.urlopen(urllib.request.Request(url, data=body, method=method), timeout=10) as reply:
        content: bytes = reply.read()
    return content


def test_files_are_made_read_renamed_listed_and_deleted(tmp_path: Path) -> None:
    def json_of(*arguments: Any) -> Any:
        return json.loads(call(address, *arguments))

    with serving(tmp_path / "root", "127.0.0.1") as address:
        assert json_of("/a/b", "MKDIRS", "PUT") == {"boolean": True}
        with pytest.raises(urllib.error.HTTPError) as redirected:
            call(address, "/a/b/x", "CREATE&overwrite=true", "PUT")
        assert redirected.value.code == 307
        assert "data=true" in redirected.value.headers["Location"]
        call(address, "/a/b/x", "CREATE&overwrite=true&data=true", "PUT", b"0123456789" * 1000)
        assert call(address, "/a/b/x", "OPEN&offset=5&length=10") == b"5678901234"
        assert len(call(address, "/a/b/x", "OPEN")) == 10_000
        assert json_of("/a/b/x", "RENAME&destination=/a/b/y", "PUT") == {"boolean": True}
        call(address, "/a/b/x", "CREATE&data=true", "PUT", b"other")
        assert json_of("/a/b/x", "RENAME&destination=/a/b/y", "PUT") == {"boolean": False}, "HDFS replaces nothing"
        listed = json_of("/a/b", "LISTSTATUS")["FileStatuses"]["FileStatus"]
        assert [(f["pathSuffix"], f["length"], f["type"]) for f in listed] == [("x", 5, "FILE"), ("y", 10_000, "FILE")]
        assert json_of("/a", "DELETE&recursive=true", "DELETE") == {"boolean": True}
        with pytest.raises(urllib.error.HTTPError) as missing:
            call(address, "/a/b/y", "GETFILESTATUS")
        assert json.load(missing.value)["RemoteException"]["exception"] == "FileNotFoundException"
        assert missing.value.code == 404


@pytest.mark.parametrize(
    "length", ["Content-Length: 100\r\n\r\n12345", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"]
)
def test_a_client_that_is_killed_in_the_middle_of_a_file(
    length: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path / "root", "127.0.0.1") as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(f"PUT /webhdfs/v1/a?op=CREATE&data=true HTTP/1.1\r\nHost: x\r\n{length}".encode())
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""  # and no thread goes on asking for the rest
    assert capfd.readouterr().err == ""

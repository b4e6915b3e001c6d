"""A folder served by HDFS's HTTP protocol (WebHDFS), for Hadoop's own client in Spark: a store over a network.

Implements what Spark's checkpoints use of hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html,
without users or permissions. File bodies leave by sendfile, so that the link, not this process, is the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

PREFIX = "/webhdfs/v1"
COPY_BYTES = 1 << 20


class _Refused(Exception):
    """An answer that Hadoop's client turns into the Java exception of that name."""

    def __init__(self, status: int, exception: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.exception = exception


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    root: Path

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: there are thousands of requests."""

    def do_GET(self) -> None:
        operations = {"OPEN": self._open, "GETFILESTATUS": self._status, "LISTSTATUS": self._list}
        self._handle({**operations, "GETHOMEDIRECTORY": self._home})

    def do_PUT(self) -> None:
        operations = {"CREATE": self._create, "MKDIRS": self._mkdirs, "RENAME": self._rename}
        self._handle({**operations, "SETPERMISSION": self._done, "SETTIMES": self._done})

    def do_DELETE(self) -> None:
        self._handle({"DELETE": self._delete})

    def _handle(self, operations: dict[str, object]) -> None:
        url = urlsplit(self.path)
        self.query = {name.lower(): values[0] for name, values in parse_qs(url.query).items()}
        self.name = unquote(url.path.removeprefix(PREFIX))
        self.local = self._inside(self.name)
        operation = operations.get(self.query.get("op", "").upper())
        try:
            if not callable(operation):
                raise _Refused(400, "UnsupportedOperationException", f"op={self.query.get('op')}")
            operation()
        except ConnectionError:
            self.close_connection = True  # the client was killed, or reads no further
        except FileNotFoundError:
            self._refuse(_Refused(404, "FileNotFoundException", f"File does not exist: {self.name}"))
        except _Refused as refusal:
            self._refuse(refusal)

    def _inside(self, name: str) -> Path:
        path = Path(os.path.normpath(f"{self.root}/{name}"))
        if path != self.root and self.root not in path.parents:
            raise PermissionError(f"{name} is outside of {self.root}")
        return path

    # ---- answers

    def _refuse(self, refusal: _Refused) -> None:
        java = {"FileNotFoundException": "java.io.", "UnsupportedOperationException": "java.lang."}
        name = java.get(refusal.exception, "org.apache.hadoop.fs.") + refusal.exception
        body = {"exception": refusal.exception, "javaClassName": name, "message": str(refusal)}
        self._answer({"RemoteException": body}, refusal.status)

    def _answer(self, body: object, status: int = 200) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        # Without Content-Type: PySpark's Hadoop lacks the class that would parse it, and takes what has none for JSON.
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _empty(self, status: int, location: str = "") -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    # ---- reading

    def _facts(self, path: Path, suffix: str) -> dict[str, object]:
        found = path.stat()
        folder = path.is_dir()
        return {
            **{"accessTime": int(found.st_atime * 1000), "modificationTime": int(found.st_mtime * 1000)},
            **{"blockSize": 0 if folder else 128 << 20, "length": 0 if folder else found.st_size},
            **{"group": "group", "owner": "owner", "permission": "755" if folder else "644", "storagePolicy": 0},
            **{"childrenNum": 0, "fileId": found.st_ino, "pathSuffix": suffix, "replication": 0 if folder else 1},
            "type": "DIRECTORY" if folder else "FILE",
        }

    def _status(self) -> None:
        self._answer({"FileStatus": self._facts(self.local, "")})

    def _home(self) -> None:
        self._answer({"Path": "/"})

    def _list(self) -> None:
        if self.local.is_dir():
            found = [(path, path.name) for path in sorted(self.local.iterdir())]
        else:
            found = [(self.local, "")]
        facts = []
        for path, suffix in found:
            try:
                facts.append(self._facts(path, suffix))
            except FileNotFoundError:
                continue  # deleted while it was listed
        self._answer({"FileStatuses": {"FileStatus": facts}})

    def _open(self) -> None:
        with self.local.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            offset = int(self.query.get("offset", "0"))
            end = min(size, offset + int(self.query["length"])) if "length" in self.query else size
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(end - offset))
            self.end_headers()
            self.wfile.flush()
            while offset < end:
                sent = os.sendfile(self.connection.fileno(), file.fileno(), offset, end - offset)
                if not sent:
                    raise ConnectionError(f"{self.name} has become shorter")
                offset += sent

    # ---- writing

    def _create(self) -> None:
        """In two steps, as a data node would take it: a redirection, then the content."""
        if "data" not in self.query:
            self._empty(307, f"http://{self.headers['Host']}{self.path}&data=true")
            return
        if self.query.get("overwrite", "true") == "false" and self.local.exists():
            self._drain()
            raise _Refused(403, "FileAlreadyExistsException", f"{self.name} already exists")
        self.local.parent.mkdir(parents=True, exist_ok=True)
        with self.local.open("wb") as file:
            for piece in self._body():
                file.write(piece)
        self._empty(201, f"http://{self.headers['Host']}{PREFIX}{self.name}")

    def _body(self) -> Iterator[bytes]:
        """ConnectionError when the client ends in the middle."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self._there(self.rfile.readline()).split(b";")[0], 16):
                yield self._there(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        else:
            left = int(self.headers.get("Content-Length", "0"))
            while left:
                piece = self._there(self.rfile.read(min(left, COPY_BYTES)))
                left -= len(piece)
                yield piece

    def _there(self, piece: bytes) -> bytes:
        if not piece:
            raise ConnectionResetError(f"{self.name} ends in the middle")
        return piece

    def _drain(self) -> None:
        for _ in self._body():
            pass

    def _mkdirs(self) -> None:
        self.local.mkdir(parents=True, exist_ok=True)
        self._answer({"boolean": True})

    def _rename(self) -> None:
        """HDFS replaces nothing: false when the destination is there."""
        target = self._inside(self.query["destination"])
        if not self.local.exists() or target.exists():
            self._answer({"boolean": False})
            return
        self.local.rename(target)
        self._answer({"boolean": True})

    def _delete(self) -> None:
        if self.local.is_dir():
            shutil.rmtree(self.local)
        elif self.local.exists():
            self.local.unlink()
        else:
            self._answer({"boolean": False})
            return
        self._answer({"boolean": True})

    def _done(self) -> None:
        self._empty(200)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address


@contextmanager
def serving(root: Path, host: str) -> Iterator[str]:
    """Serves `root` from another process; gives "host:port"."""
    root.mkdir(parents=True)
    command = [sys.executable, "-m", __name__, "--root", str(root), "--host", host]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.webhdfs", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder to serve")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; prints the port it found")
    arguments = parser.parse_args()
    _Handler.root = arguments.root.resolve()
    with _Server((arguments.host, 0), _Handler) as server:
        print(json.dumps({"service": "webhdfs", "address": f"{arguments.host}:{server.server_address[1]}"}), flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()

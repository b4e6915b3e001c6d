"""S3 by moto, in a process of its own. It counts the requests that arrive, so also those that a client repeats."""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any
from urllib.request import Request, urlopen

BUCKET = "states"
URL = f"s3://{BUCKET}/rhino"
SEEN = "/-seen"


@dataclass(frozen=True, slots=True)
class Store:
    """It has an empty bucket, and serves all addresses of this machine."""

    port: int

    def use(self, host: str) -> None:
        """Processes that are started from now on find S3 at this address."""
        os.environ |= {"AWS_ENDPOINT_URL": f"http://{host}:{self.port}", "AWS_ALLOW_HTTP": "true"}
        os.environ |= {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark"}

    def seen(self) -> Counter[str]:
        """Requests so far, by kind: put, get, list, head, delete, post. "bytes": received with them."""
        with urlopen(f"http://127.0.0.1:{self.port}{SEEN}") as reply:
            return Counter(json.load(reply))


@contextlib.contextmanager
def s3() -> Iterator[Store]:
    """It ends with the context, and all objects go."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()  # so that `recv` fails when the process does
    try:
        store = Store(mine.recv())
        urlopen(Request(f"http://127.0.0.1:{store.port}/{BUCKET}", method="PUT")).close()
        store.use("127.0.0.1")
        yield store
    finally:
        process.kill()
        process.join()


def _serve(pipe: Connection) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application: Any = DomainDispatcherApplication(create_backend_app)
    lock, seen = threading.Lock(), Counter[str]()

    def counted(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"].lower()
        with lock:
            if environ["PATH_INFO"] == SEEN:
                start_response("200 OK", [])
                return [json.dumps(seen).encode()]
            seen["list" if method == "get" and "list-type=" in environ["QUERY_STRING"] else method] += 1
            seen["bytes"] += int(environ.get("CONTENT_LENGTH") or 0)
        answer: Iterable[bytes] = application(environ, start_response)
        return answer

    server = make_server("0.0.0.0", 0, counted, threaded=True, request_handler=MotoRequestHandler)
    pipe.send(server.port)
    server.serve_forever()

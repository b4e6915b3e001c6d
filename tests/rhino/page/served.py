"""A page served in a thread of this process, and its browser: plain HTTP calls."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rhino.page.serving import Page, PageSettings

TIMEOUT_S = 20.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    text: str

    @property
    def content(self) -> Any:
        return json.loads(self.text)


class Served:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.origin, _, self.token = page.address.partition("/#token=")
        self.host = self.origin.partition("://")[2]

    def ask(self, path: str, body: object = None, *, method: str = "", **headers: str | None) -> Answer:
        """Asks as the page itself does. Headers: with "_" for "-"; None: without it."""
        with self.asked(path, body, method=method, **headers) as answer:
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())

    @contextlib.contextmanager
    def asked(
        self, path: str, body: object = None, *, method: str = "", **headers: str | None
    ) -> Iterator[http.client.HTTPResponse]:
        usual: dict[str, str | None] = {"authorization": f"Bearer {self.token}"}
        if body is not None:
            usual |= {"origin": self.origin, "content-type": "application/json"}
        given = usual | {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.closing(http.client.HTTPConnection(self.host, timeout=TIMEOUT_S)) as connection:
            named = {name: value for name, value in given.items() if value is not None}
            connection.request(method or ("GET" if body is None else "POST"), path, data, named)
            yield connection.getresponse()

    def documents(self) -> Iterator[dict[str, Any]]:
        """The stream of documents."""
        with self.asked("/data/live") as answer:
            assert (answer.status, answer.getheader("content-type", "").partition(";")[0]) == (200, "text/event-stream")
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))

    def until(self, condition: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """The first document for which the condition holds."""
        deadline = time.monotonic() + TIMEOUT_S
        for found in self.documents():
            if found.get("verdict") and condition(found):
                return found
            assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT_S} s"
        raise AssertionError(f"{what}: the stream ended")


@contextlib.contextmanager
def served(manager: str, **more: Any) -> Iterator[Served]:
    page = Page(PageSettings(manager, "127.0.0.1", 0, 0.1, **more))
    thread = threading.Thread(target=page.run, name="page")
    thread.start()
    try:
        yield Served(page)
    finally:
        page.server.should_exit = True
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()

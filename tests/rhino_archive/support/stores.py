"""Stores for tests: S3 by moto, in a thread of this process."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

BUCKET = "states"
SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAOFATEST",
    "AWS_SECRET_ACCESS_KEY": "secret-of-a-test",
    "AWS_SESSION_TOKEN": "token-of-a-test",
}


@contextmanager
def s3() -> Iterator[str]:
    """The address of an S3 that has an empty bucket `states`."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    try:
        with urlopen(Request(f"{address}/{BUCKET}", method="PUT")):
            yield address
    finally:
        server.stop()


def use(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets that are opened from now on find S3 there."""
    for name, value in (SECRETS | {"AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true"}).items():
        monkeypatch.setenv(name, value)


def fill(names: Iterable[str]) -> None:
    """Puts objects of one byte into the bucket of the running S3, without requests: those take 8 ms each."""
    for name in names:
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(BUCKET, name, b"x")

"""The guard answers requests by their token, host and origin. test_app.py asks the real server."""

from __future__ import annotations

import pytest

from rhino.page.guard import Access

LOCAL = Access("secret", "127.0.0.1")
OPEN = Access("secret", "0.0.0.0", frozenset({"node-1", "node-1.example"}))
POST = {"host": "localhost:7480", "origin": "http://localhost:7480", "content-type": "application/json"}
POST |= {"authorization": "Bearer secret"}


def status(access: Access, method: str = "GET", path: str = "/data/live", **headers: str) -> int:
    given = {"host": "127.0.0.1:7480", **{name.replace("_", "-"): value for name, value in headers.items()}}
    found = access.refusal(method, "http", path, given)
    return 200 if found is None else found.status


@pytest.mark.parametrize(
    "host", ["127.0.0.1:7480", "localhost", "localhost:9000", "[::1]:7480", "127.0.0.1", "LOCALHOST"]
)
def test_names_of_this_machine_are_served(host: str) -> None:
    assert status(LOCAL, path="/", host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:7480",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "[bad",
        "node-1",
    ],
)
def test_other_names_are_refused_for_files_and_data(host: str) -> None:
    for path in ("/", "/page.js", "/data/live"):
        assert status(LOCAL, path=path, host=host, authorization="Bearer secret") == 421


@pytest.mark.parametrize(("host", "expected"), [("10.0.0.1:7480", 200), ("node-1:7480", 200), ("node-2:7480", 421)])
def test_a_page_for_others_has_the_names_of_its_machine_and_any_number(host: str, expected: int) -> None:
    assert status(OPEN, path="/", host=host) == expected


@pytest.mark.parametrize(
    "given", ["", "secret", "Bearer", "Bearer ", "Bearer Secret", "Bearer secret2", "Basic secret"]
)
def test_data_needs_the_token(given: str) -> None:
    assert status(LOCAL, authorization=given) == 401
    assert status(LOCAL) == 401
    assert status(LOCAL, authorization="bearer secret") == 200


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "https://localhost:7480"}, 403),
        ({"origin": "http://localhost:7481"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "application/json; charset=utf-8"}, 200),
        ({"authorization": ""}, 401),
    ],
)
def test_a_change_comes_from_the_page_itself(changed: dict[str, str], expected: int) -> None:
    found = LOCAL.refusal("POST", "http", "/data/run", POST | changed)
    assert (200 if found is None else found.status) == expected


def test_a_read_only_page_changes_nothing() -> None:
    found = Access("secret", "127.0.0.1", read_only=True).refusal("POST", "http", "/data/plan", POST)
    assert found is not None
    assert (found.status, "--read-only" in found.reason) == (403, True)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(method: str) -> None:
    assert status(LOCAL, method, authorization="Bearer secret") == 405
    assert status(LOCAL, method, "/page.js") == (200 if method == "HEAD" else 405)

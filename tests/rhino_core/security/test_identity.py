"""Identities: their URI and DNS name, and what is refused."""

from __future__ import annotations

import pytest

from rhino_core.errors import InvalidRequestError
from rhino_core.security.identity import Identity, Role, one_identity, parse


@pytest.mark.parametrize(
    ("identity", "uri", "server_name"),
    [
        (Identity("c", Role.MANAGER, "m-1"), "rhino://c/manager/m-1", "manager.c.rhino"),
        (Identity("c", Role.WORKER, "127.0.7.12"), "rhino://c/worker/127.0.7.12", "127.0.7.12.worker.c.rhino"),
        (Identity("c", Role.WORKER, "Node_A"), "rhino://c/worker/Node_A", "_node___a.worker.c.rhino"),
        (Identity("key-1f", Role.READER, "a_b"), "rhino://key-1f/reader/a_b", "a__b.reader.key-1f.rhino"),
    ],
)
def test_uri_and_server_name(identity: Identity, uri: str, server_name: str) -> None:
    assert (identity.uri, identity.server_name) == (uri, server_name)
    assert parse(uri) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "http://c/worker/a",
        "rhino://c/worker",
        "rhino://c/worker/a/b",
        "rhino://c/worker/",
        "rhino://c/admin/a",
        "rhino://C/worker/a",
        "rhino:///worker/a",
        "rhino://c.d/worker/a",
        "rhino://-c/worker/a",
        f"rhino://{'c' * 64}/worker/a",
        "rhino://c/worker/../a",
        "rhino://c/worker/a\n",
        f"rhino://c/worker/{'a' * 129}",
    ],
)
def test_what_is_no_identity(uri: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse(uri)


def test_names_that_differ_in_capitals_only_are_told_apart() -> None:
    names = ["a", "A", "_a", "__a", "_A", "a_", "aA", "a_a"]
    safe = [f"x{name}" for name in names]  # a name begins with a letter or a digit
    made = {Identity("c", Role.WORKER, name).server_name.lower() for name in safe}
    assert len(made) == len(names)


def test_a_worker_cannot_have_the_name_of_a_manager() -> None:
    """Otherwise the sidecar "manager" of a cluster "x" could answer for a manager of another one."""
    names = {Identity("c", role, name).server_name for role in Role for name in ("manager", "manager.c", "worker")}
    assert len(names) == 3 * (len(Role) - 1) + 1  # all managers of a cluster share theirs


def test_a_certificate_has_one_identity() -> None:
    assert one_identity(["https://a", "rhino://c/worker/a"]) == Identity("c", Role.WORKER, "a")
    for uris in ([], ["https://a"], ["rhino://c/worker/a", "rhino://c/manager/m"]):
        with pytest.raises(InvalidRequestError, match="one URI"):
            one_identity(uris)

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rhino_core import epochs, ids
from rhino_core.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("name", "kind", "version"),
    [
        ("12_ab-1.changelog", ids.FileKind.CHANGELOG, ids.Version(12, "ab-1")),
        ("3_x.zip", ids.FileKind.SNAPSHOT, ids.Version(3, "x")),
        ("SSTs/000012-ab.sst", ids.FileKind.SST, None),
        ("logs/000012-ab.log", ids.FileKind.LOG, None),
    ],
)
def test_names_of_checkpoint_format_2(name: str, kind: ids.FileKind, version: ids.Version | None) -> None:
    assert ids.parse_name(name) == (kind, version)


@pytest.mark.parametrize(
    "name",
    [
        "12.changelog",
        "12.zip",
        "../1_a.zip",
        "SSTs/../1_a.zip",
        "SSTs/1-a.log",
        "/1_a.zip",
        "",
        "1_a.zip\n",
        "01_a.zip",
    ],
)
def test_other_names_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="file name"):
        ids.parse_name(name)


@given(st.text())
def test_a_parsed_name_never_leaves_its_folder(name: str) -> None:
    try:
        ids.parse_name(name)
    except InvalidRequestError:
        return
    assert ".." not in name.split("/")
    assert not name.startswith("/")


@pytest.mark.parametrize("job", ["", ".", "..", "a/b", "/etc", ".hidden", "a\x00", "a\n", "é", "a" * 129])
def test_unsafe_names_are_refused(job: str) -> None:
    assert not ids.is_safe(job)
    with pytest.raises(InvalidRequestError):
        ids.check_job(job)


@pytest.mark.parametrize("address", ["host:1", "10.0.0.1:7462", "[::1]:65535", "worker-1.rack_2.example.org:80"])
def test_addresses(address: str) -> None:
    assert ids.is_address(address)


@pytest.mark.parametrize(
    "address", ["", "host", ":1", "host:", "host:70000", "host:1x", "ho st:1", "unix:///x:1", "h:²"]
)
def test_what_is_no_address(address: str) -> None:
    assert not ids.is_address(address)


def test_epochs_that_no_manager_can_have_issued() -> None:
    now_ms = int(time.time() * 1000)
    assert epochs.is_possible(ids.Epoch(now_ms, ids.COUNTER_MAX))
    assert epochs.is_possible(ids.Epoch(now_ms + 365 * 86_400_000, 1)), "can be exceeded for years"
    assert not epochs.is_possible(ids.Epoch(now_ms + 12 * 366 * 86_400_000, 1))
    assert not epochs.is_possible(ids.Epoch(now_ms, ids.COUNTER_MAX + 1))


def test_epochs_are_ordered_by_generation_first() -> None:
    assert ids.Epoch(1, 9) < ids.Epoch(2, 0) < ids.Epoch(2, 1)


def test_min_copies_defaults_to_two_or_what_there_can_be() -> None:
    assert ids.JobSettings(0).copies == 1
    assert ids.JobSettings(1).copies == 2
    assert ids.JobSettings(3).copies == 2
    with pytest.raises(InvalidRequestError, match="min copies 3"):
        ids.JobSettings(1, min_copies=3)

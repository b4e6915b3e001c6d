import pytest
from hypothesis import given
from hypothesis import strategies as st

from rhino import ids
from rhino.errors import InvalidRequestError


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


@pytest.mark.parametrize("job", ["", "..", "a/b", ".hidden", "a\x00"])
def test_unsafe_store_names_are_refused(job: str) -> None:
    with pytest.raises(InvalidRequestError):
        ids.check_store(ids.StoreId(job, 0, 0, "default"))


def test_epochs_are_ordered_by_generation_first() -> None:
    assert ids.Epoch(1, 9) < ids.Epoch(2, 0) < ids.Epoch(2, 1)


def test_min_copies_defaults_to_two_or_what_there_can_be() -> None:
    assert ids.JobSettings(0).copies == 1
    assert ids.JobSettings(1).copies == 2
    assert ids.JobSettings(3).copies == 2
    with pytest.raises(InvalidRequestError, match="min copies 3"):
        ids.JobSettings(1, min_copies=3)

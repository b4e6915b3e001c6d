"""Folders and buckets look alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from rhino_core.errors import IntegrityError, InvalidRequestError, UnknownError
from spark_connector.doctor.tree import Folder, Objects, Tree, opened

pytest.importorskip("obstore")


@pytest.fixture(params=["folder", "objects"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    (tmp_path / "state/0/1").mkdir(parents=True)
    (tmp_path / "metadata").write_bytes(b"{}")
    (tmp_path / "state/0/1/8_a.changelog").write_bytes(b"changes")
    return Folder(tmp_path) if request.param == "folder" else Objects(str(tmp_path))


def test_files_are_listed_with_their_sizes_and_times(tree: Tree) -> None:
    found = tree.files()
    assert {name: file.size_bytes for name, file in found.items()} == {"metadata": 2, "state/0/1/8_a.changelog": 7}
    assert all(file.changed_s > 1_700_000_000 for file in found.values())


def test_files_are_read_whole(tree: Tree) -> None:
    assert tree.read("state/0/1/8_a.changelog") == b"changes"


def test_a_file_deleted_meanwhile_is_no_file(tree: Tree) -> None:
    with pytest.raises(IntegrityError):
        tree.read("state/0/1/9_a.changelog")


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "q/metadata").symlink_to(tmp_path / "secret")
    assert Folder(tmp_path / "q").files() == {}
    with pytest.raises(IntegrityError, match="link"):
        Folder(tmp_path / "q").read("metadata")


@pytest.mark.parametrize(
    ("location", "error"), [("hdfs://nn:8020/q", InvalidRequestError), ("/nowhere/at/all", UnknownError)]
)
def test_other_locations_are_refused(location: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        opened(location)

"""Which files open a version, in the three layouts."""

from __future__ import annotations

from typing import Any, cast

from rhino_core.ids import Version
from spark_connector.doctor.files import Fact, Files
from spark_connector.doctor.layout import Store, layout_of
from spark_connector.doctor.tree import File
from spark_connector.doctor.versions import open_version
from worker_runtime.verify.snapshot import Metadata


class Content:
    """Takes the place of Files. `bad`: damaged files. `lineages`: of changelogs, as texts "6a 7a"."""

    deep = False

    def __init__(self, names: str, lineages: dict[str, str], bad: str = "", data: dict[str, str] | None = None) -> None:
        self.names = [f"state/0/0/{name}" for name in names.split()]
        self._lineages, self._bad, self._data = lineages, bad.split(), data or {}

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> File:
        return File(7, 0.0)

    def fact(self, name: str) -> Fact:
        short = name.removeprefix("state/0/0/")
        if name not in self.names:
            return Fact("is missing")
        if short in self._bad:
            return Fact("is bad")
        if short.endswith(".zip"):
            named = tuple((f"SSTs/{one}", one, 7) for one in self._data.get(short, "").split())
            return Fact("", Metadata(named, 0))
        return Fact("", tuple(version(text) for text in self._lineages.get(short, "").split()))

    @property
    def store(self) -> Store:
        return layout_of(self.names).stores[0, 0, "default"]


def version(text: str) -> Version:
    number = text.rstrip("abcdefgh")
    return Version(int(number), text[len(number) :])


def opened(content: Content, text: str) -> tuple[bool, list[str], list[tuple[str, bool]], bool]:
    found = open_version(content.store, version(text), cast(Files, cast(Any, content)))
    short = [name.removeprefix("state/0/0/") for name in found.files]
    return found.opens, short, [(o.file.removeprefix("state/0/0/"), o.skipped) for o in found.obstacles], found.detour


def test_format_1_opens_from_the_newest_snapshot_and_the_changelogs_after_it() -> None:
    content = Content("1.changelog 2.changelog 2.zip 3.changelog 4.changelog SSTs/x.sst", {}, data={"2.zip": "x.sst"})
    assert opened(content, "4") == (True, ["SSTs/x.sst", "2.zip", "3.changelog", "4.changelog"], [], False)
    assert opened(content, "1") == (True, ["1.changelog"], [], False)


def test_a_damaged_snapshot_is_gone_around() -> None:
    content = Content("1.changelog 2.changelog 2.zip 3.changelog", {}, bad="2.zip")
    assert opened(content, "3") == (True, ["1.changelog", "2.changelog", "3.changelog"], [("2.zip", True)], False)


def test_a_missing_data_file_is_named_and_not_its_zip() -> None:
    content = Content("1.changelog 1.zip 2.changelog", {}, data={"1.zip": "lost.sst"})
    assert opened(content, "2")[2] == [("SSTs/lost.sst", True)]


def test_a_missing_change_ends_the_way() -> None:
    content = Content("1.changelog 3.changelog", {})
    assert opened(content, "3") == (False, [], [("2.changelog", False)], False)


def test_a_version_with_a_snapshot_only_is_blocked_by_it() -> None:
    content = Content("1.zip 2.zip", {}, bad="2.zip")
    assert opened(content, "2") == (False, [], [("2.zip", False)], False)


def test_the_layout_of_the_hdfs_backed_provider() -> None:
    content = Content("1.delta 2.delta 2.snapshot 3.delta", {})
    assert opened(content, "3") == (True, ["2.snapshot", "3.delta"], [], False)
    assert opened(content, "5")[2] == [("5.delta", False)]


FORMAT_2 = {"1_a.changelog": "", "2_a.changelog": "1a", "3_a.changelog": "2a", "4_a.changelog": "2a 3a"}
NAMES = "1_a.changelog 2_a.changelog 2_b.changelog 3_a.changelog 4_a.changelog"


def test_format_2_follows_the_lineage() -> None:
    content = Content(f"{NAMES} 2_a.zip 2_b.zip", FORMAT_2)
    assert opened(content, "4a") == (True, ["2_a.zip", "3_a.changelog", "4_a.changelog"], [], False)


def test_a_lineage_without_its_base_is_a_detour() -> None:
    content = Content(NAMES, FORMAT_2)
    whole = ["1_a.changelog", "2_a.changelog", "3_a.changelog", "4_a.changelog"]
    assert opened(content, "4a") == (True, whole, [("2_a.zip", True)], True)


def test_a_changelog_of_another_version_is_named() -> None:
    content = Content(NAMES, FORMAT_2 | {"4_a.changelog": "1a 2a"})
    assert opened(content, "4a") == (False, [], [("4_a.changelog", False)], False)


def test_an_unreadable_lineage_is_taken_from_the_commit_log() -> None:
    content = Content("1_a.changelog 2_a.changelog", {})
    store = content.store
    store.logged[1] = Version(1, "a")
    found = open_version(store, Version(2, "a"), cast(Files, cast(Any, content)))
    assert [name.rpartition("/")[2] for name in found.files] == ["1_a.changelog", "2_a.changelog"]

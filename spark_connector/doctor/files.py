"""The files of a checkpoint, and facts about each: they are read when they are first asked for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from rhino_core.errors import IntegrityError
from rhino_core.foreign import reading
from spark_connector.doctor import checksums, content, database
from spark_connector.doctor.tree import File, Tree
from spark_connector.query_logs import commit_entry
from worker_runtime.verify import changelog

CHANGES = re.compile(r"(?:.*/)?\d+(?P<id>_[^/]+)?\.(?:changelog|delta|snapshot)")
DATA = re.compile(r".*/(?:SSTs|logs)/[^/]+")


def _commit(data: bytes) -> Any:
    with reading("its content"):
        return commit_entry(-1, data.decode())


_ZIP = re.compile(r"(?:.*/)?\d+(?:_[^/]+)?\.zip")
_PARSERS: tuple[tuple[re.Pattern[str], Callable[[bytes], Any]], ...] = (
    (re.compile(r"metadata"), content.query_id),
    (re.compile(r"offsets/\d+"), content.offset_entry),
    (re.compile(r"commits/\d+"), _commit),
    (re.compile(r"state/\d+/_metadata/(?:metadata|v2/\d+)"), content.operator),
    (re.compile(r"state/.*/_metadata/schema|state/\d+/_stateSchema/.*"), content.schema),
    (_ZIP, content.snapshot),
    (re.compile(r".*/SSTs/[^/]+\.sst"), content.table),
)


class Sum(NamedTuple):
    """A checksum file, and whether it matches. None: it is damaged, as the text says. `by_spark`: not by Hadoop."""

    file: str
    matches: bool | None
    text: str
    by_spark: bool


@dataclass(frozen=True, slots=True)
class Fact:
    """`problem`: empty if Spark would read the file. `value`: its parsed content.

    `wrong_sums`: checksum files that are damaged although the file is not. `unproven`: why nothing shows that the
    content is whole.
    """

    problem: str = ""
    value: Any = None
    wrong_sums: tuple[Sum, ...] = ()
    unproven: str = ""


class Files:
    """`codec`: how the changelogs are compressed. `deep`: whether data files are read, and not only their sizes."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.listed = tree.files()
        self.codec = "lz4"
        self.deep = False
        self._facts: dict[str, Fact] = {}
        self._databases: dict[str, str] = {}
        self._read_by_rocksdb: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self.listed

    def __getitem__(self, name: str) -> File:
        return self.listed[name]

    def fact(self, name: str) -> Fact:
        """Raises the errors of a store that does not answer."""
        if name not in self.listed:
            return Fact("is missing")
        known = self._facts.get(name)
        if known is None:
            known = self._facts[name] = self._examined(name)
        return known

    def read_all(self, names: Iterable[str]) -> None:
        """Examines files side by side."""
        self.each(self.fact, names)

    def each(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Returns the results of `work`, which reads files, in the order of `items`."""
        with ThreadPoolExecutor(self.tree.at_a_time) as pool:
            try:
                return list(pool.map(work, items))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def database_problem(self, folder: str, snapshot: str) -> str:
        """Returns what RocksDB says against a snapshot, if some of its data files have no checksum files."""
        if not snapshot.endswith(".zip"):
            return ""
        data = [f"{folder}/{below}" for below, _, _ in self.fact(snapshot).value.files]
        if snapshot not in self._databases and any(self.fact(name).unproven for name in data):
            self._databases[snapshot] = database.problem(self.tree, folder, snapshot)
            if not self._databases[snapshot]:
                self._read_by_rocksdb.update(data)
        return self._databases.get(snapshot, "")

    def unproven(self) -> list[str]:
        """Returns the files that were read, and whose content nothing proves."""
        return [name for name, fact in self._facts.items() if fact.unproven and name not in self._read_by_rocksdb]

    def examined(self) -> dict[str, Fact]:
        return self._facts

    def _examined(self, name: str) -> Fact:
        try:
            data = self.tree.read(name)
        except IntegrityError as error:
            return Fact(str(error))
        sums = list(self._sums(name, data))
        proven = any(found.matches for found in sums)
        try:
            value, unproven = self._parsed(name, data, proven=proven)
        except IntegrityError as error:
            return Fact(f"{'is empty' if not data else error}")
        wrong = [found for found in sums if not found.matches]
        differing = [found.file for found in sums if found.matches is False and found.file in checksums.names_of(name)]
        sealed = CHANGES.fullmatch(name) or _ZIP.fullmatch(name)  # these have checksums within
        if differing and not proven and (unproven or not sealed):
            return Fact(f"does not match its checksum in {differing[0]}", value)
        return Fact("", value, tuple(wrong), unproven)

    def _sums(self, name: str, data: bytes) -> Iterator[Sum]:
        """Yields the checksum files of a file, and that of Spark's checksum file."""
        hadoop, spark = checksums.names_of(name)
        yield from self._sum(hadoop, checksums.hadoop_matches, data, by_spark=False)
        yield from self._sum(spark, checksums.spark_matches, data, by_spark=True)
        own, _ = checksums.names_of(spark)
        if spark in self.listed and own in self.listed:
            with contextlib.suppress(IntegrityError):  # already yielded
                found = self._sum(own, checksums.hadoop_matches, self.tree.read(spark), by_spark=False)
                yield from (one for one in found if not one.matches)

    def _sum(self, file: str, matches: Callable[[bytes, bytes], bool], data: bytes, *, by_spark: bool) -> Iterator[Sum]:
        """Yields nothing if there is no such checksum file."""
        if file in self.listed:
            try:
                same = matches(self.tree.read(file), data)
                yield Sum(file, same, "" if same else "it does not match the file, which is whole", by_spark)
            except IntegrityError as error:
                yield Sum(file, None, f"it is damaged: {error}", by_spark)

    def _parsed(self, name: str, data: bytes, *, proven: bool) -> tuple[Any, str]:
        """Returns the parsed content, and why it is unproven. A changelog's is its lineage; none in format 1."""
        if match := CHANGES.fullmatch(name):
            if self.codec != "lz4":
                return (), "" if proven else f"it is compressed with {self.codec}, which nothing here reads"
            if not proven:
                changelog.check(data, lineage_wanted=bool(match["id"]))
            return changelog.lineage(data) if match["id"] else (), ""
        for pattern, parse in _PARSERS:
            if pattern.fullmatch(name):
                value = parse(data)
                doubtful = parse is content.table and not proven
                return value, "it has no checksum file" if doubtful else ""
        if not data and name.startswith("sources/"):
            raise IntegrityError("is empty")
        return None, ""

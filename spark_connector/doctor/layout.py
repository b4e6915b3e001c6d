"""Which file of a checkpoint is what, by its name. No I/O."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rhino_core.ids import Version
from spark_connector.doctor.checksums import is_sum
from spark_connector.query_checkpoint import DEFAULT_STORE

_STORE = re.compile(
    r"(?P<folder>state/(?P<operator>\d{1,6})/(?P<partition>\d{1,6})(?:/(?P<store>[^/]+))?)/"
    r"(?:(?P<number>\d{1,18})(?:_(?P<id>[^/.]+))?\.(?P<kind>zip|snapshot|changelog|delta)|(?:SSTs|logs)/[^/.][^/]*)"
)
_LOG = re.compile(r"(?P<log>offsets|commits)/(?P<batch>0|[1-9]\d{0,17})")
_OPERATOR = re.compile(r"state/(?P<operator>\d{1,6})/(?:_metadata|_stateSchema)/.+")
_METADATA = re.compile(r"state/(?P<operator>\d{1,6})/_metadata/(?:metadata|v2/(?P<batch>\d{1,18}))")
_SCHEMA = re.compile(r"state/\d+/(?:\d+/(?:[^/]+/)?_metadata/schema|_stateSchema/.+)")
_TEMPORARY = re.compile(r"(?:.*/)?\..*\.tmp(?:\.crc)?|(?:.*/)?\..*\.rhino\.tmp")

Place = tuple[int, int, str]  # operator, partition, store


@dataclass(slots=True)
class Store:
    """The files of one store. Versions of checkpoint format 1 have no id.

    `logged`: versions by number, as the commit log names them.
    """

    place: Place
    folder: str
    snapshots: dict[Version, str] = field(default_factory=dict)
    changes: dict[Version, str] = field(default_factory=dict)
    data: list[str] = field(default_factory=list)
    logged: dict[int, Version] = field(default_factory=dict)

    def written(self) -> list[str]:
        """Returns the files that name a version."""
        return [*self.changes.values(), *self.snapshots.values()]

    def changes_name(self, version: Version, kind: str) -> str:
        return self.changes.get(version) or f"{self.folder}/{version_name(version)}.{kind}"


@dataclass(slots=True)
class Layout:
    """`metadata`: by operator and batch; -1 for the kind without batches."""

    offsets: dict[int, str] = field(default_factory=dict)
    commits: dict[int, str] = field(default_factory=dict)
    stores: dict[Place, Store] = field(default_factory=dict)
    operators: set[int] = field(default_factory=set)
    metadata: dict[int, dict[int, str]] = field(default_factory=dict)
    schemas: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)


def version_name(version: Version) -> str:
    return str(version) if version.checkpoint_id else str(version.version)


def store_folder(place: Place) -> str:
    operator, partition, store = place
    return f"state/{operator}/{partition}" + ("" if store == DEFAULT_STORE else f"/{store}")


def gaps(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Returns the first and the last of the numbers missing in each gap."""
    return [(before + 1, after - 1) for before, after in itertools.pairwise(sorted(numbers)) if after > before + 1]


def layout_of(names: Iterable[str]) -> Layout:
    found = Layout()
    for name in sorted(names):
        if _TEMPORARY.fullmatch(name):
            found.temporary.append(name)
        elif not is_sum(name):
            _note(found, name)
    return found


def _note(found: Layout, name: str) -> None:
    if match := _LOG.fullmatch(name):
        (found.offsets if match["log"] == "offsets" else found.commits)[int(match["batch"])] = name
    elif match := _STORE.fullmatch(name):
        _note_state(found, match, name)
    elif match := _OPERATOR.fullmatch(name):
        found.operators.add(int(match["operator"]))
        if kind := _METADATA.fullmatch(name):
            found.metadata.setdefault(int(match["operator"]), {})[int(kind["batch"] or -1)] = name
        elif _SCHEMA.fullmatch(name):
            found.schemas.append(name)
    elif _SCHEMA.fullmatch(name):
        found.schemas.append(name)
    elif name.startswith("sources/"):
        found.sources.append(name)


def _note_state(found: Layout, match: re.Match[str], name: str) -> None:
    place = (int(match["operator"]), int(match["partition"]), match["store"] or DEFAULT_STORE)
    found.operators.add(place[0])
    store = found.stores.setdefault(place, Store(place, match["folder"]))
    if match["number"] is None:
        store.data.append(name)
        return
    version = Version(int(match["number"]), match["id"] or "")
    (store.snapshots if match["kind"] in ("zip", "snapshot") else store.changes)[version] = name

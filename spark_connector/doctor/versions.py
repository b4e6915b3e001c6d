"""Whether a version of a store opens, and from which files. The three layouts of Spark's providers have one rule.

A version opens from a snapshot and the changes of each version after it. Version 0 is empty and needs none. In format
1, and with the HDFS-backed provider, versions have numbers only. In format 2, a changelog names the versions before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rhino_core.ids import Version
from spark_connector.doctor.files import Files
from spark_connector.doctor.layout import Store, version_name


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A file that stands in the way, or would be needed. `skipped`: the version opens without it, by a detour.

    `unseen`: Spark does not see the damage when it opens the version, and fails later.
    """

    file: str
    text: str
    skipped: bool = False
    unseen: bool = False


@dataclass(frozen=True, slots=True)
class Opening:
    """`files`: all that the version opens from, if `opens`. `chain`: the base and the versions after it, in order.

    `detour`: the base is older than the one that Spark looks for.
    """

    opens: bool
    files: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]
    chain: tuple[Version, ...] = ()
    detour: bool = False


def snapshot_problems(store: Store, name: str, files: Files) -> list[Obstacle]:
    """Returns the reasons why a snapshot does not open."""
    fact = files.fact(name)
    if fact.problem:
        return [Obstacle(name, fact.problem)]
    found = []
    for path, size_bytes in references(store, name, files):
        if path not in files:
            found.append(Obstacle(path, "is missing"))
        elif files[path].size_bytes != size_bytes:
            found.append(Obstacle(path, f"has {files[path].size_bytes} bytes, and {name} says {size_bytes}"))
        elif files.deep and (problem := files.fact(path).problem):
            found.append(Obstacle(path, problem))
    if files.deep and not found and (problem := files.database_problem(store.folder, name)):
        found.append(Obstacle(name, problem, unseen=True))
    return found


def references(store: Store, name: str, files: Files) -> list[tuple[str, int]]:
    """Returns the data files of a readable snapshot, with their sizes. One of the HDFS-backed provider has none."""
    if not name.endswith(".zip"):
        return []
    return [(f"{store.folder}/{below}", size) for below, _, size in files.fact(name).value.files]


def open_version(store: Store, version: Version, files: Files) -> Opening:
    """Looks for the newest base from which the version opens."""
    kind = "delta" if any(name.endswith((".delta", ".snapshot")) for name in store.written()) else "changelog"
    obstacles: list[Obstacle] = []
    needed: list[str] = []
    chain: list[Version] = []
    current, looked_for = version, 0
    while True:
        snapshot = store.snapshots.get(current)
        if snapshot is not None:
            wrong = snapshot_problems(store, snapshot, files)
            if not wrong:
                data = [path for path, _ in references(store, snapshot, files)]
                return _opened([*data, snapshot], needed, obstacles, [*chain, current], looked_for > current.version)
            obstacles += wrong
        if current.version <= 0:
            return _opened([], needed, obstacles, chain, looked_for > 0)
        name = store.changes_name(current, kind)
        fact = files.fact(name)
        if fact.problem:
            if snapshot is not None and name not in files:  # it has a snapshot only
                return Opening(False, (), tuple(obstacles))
            return Opening(False, (), (*obstacles, Obstacle(name, fact.problem)))
        needed.append(name)
        chain.append(current)
        before, reason = _before(current, fact.value, store)
        if before is None:
            return Opening(False, (), (*obstacles, Obstacle(name, reason)))
        if current == version and version.checkpoint_id:
            looked_for = _first(fact.value)
            obstacles += _missing_base(store, fact.value)
        current = before


def _opened(
    base: list[str], needed: list[str], obstacles: list[Obstacle], chain: list[Version], behind: bool
) -> Opening:
    skipped = tuple(replace(found, skipped=True) for found in obstacles)
    files = (*base, *reversed(needed))
    return Opening(True, files, skipped, tuple(reversed(chain)), detour=behind)


def _before(version: Version, lineage: tuple[Version, ...], store: Store) -> tuple[Version | None, str]:
    """Returns the version before, or None and the reason. The commit log knows it if the lineage is unreadable."""
    if version.version == 1:
        return Version(0, ""), ""
    if not version.checkpoint_id:
        return Version(version.version - 1, ""), ""
    if not lineage and version.version - 1 in store.logged:
        return store.logged[version.version - 1], ""
    if not lineage or lineage[-1].version != version.version - 1:
        named = version_name(lineage[-1]) if lineage else "none"
        return None, f"is for another version: its lineage ends with {named}, expected one of {version.version - 1}"
    return lineage[-1], ""


def _first(lineage: tuple[Version, ...]) -> int:
    """Returns the version before which Spark looks for no base, by the lineage in the newest changelog."""
    return 0 if not lineage or lineage[0].version == 1 else lineage[0].version


def _missing_base(store: Store, lineage: tuple[Version, ...]) -> list[Obstacle]:
    if not _first(lineage) or any(version in store.snapshots for version in lineage):
        return []
    return [Obstacle(f"{store.folder}/{version_name(lineage[0])}.zip", "is missing")]

"""The checkpoint of a restructured query: a branch's checkpoint with other operators.

The work is on files of a branch without its name yet (`BranchFolder`). The former checkpoint is only read.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from query_evolution.branches.folder import copy_file
from query_evolution.structure.alignment import Alignment, Choices, align
from query_evolution.structure.operators import METADATA, SCHEMA, Operator, read_operators
from query_evolution.structure.rebuilt import Rebuilding, find_rebuilt
from rhino_core import failpoints
from rhino_core.errors import IntegrityError, PreconditionError
from rhino_core.foreign import read_text, reading
from rhino_core.ids import StoreId, StoreVersion, Version
from spark_connector import operator_metadata
from spark_connector.query_checkpoint import PROVIDER_KEY, QueryCheckpoint
from spark_connector.query_logs import CommittedBatch, Logged, ids_of


@dataclass(frozen=True, slots=True)
class Link:
    """A version of the former query, for the new query's store `target`."""

    source: StoreVersion
    target: StoreId


@dataclass(frozen=True, slots=True)
class Restructuring:
    """The parts of a new query. `logged`: the batch with which its state begins. `sketch`: checkpoint of the new plan.

    `rebuilt`: the state of born operators, after the same batch; None: they begin empty.
    """

    source: QueryCheckpoint
    sketch: Path
    logged: Logged
    alignment: Alignment
    committed: CommittedBatch
    rebuilt: Rebuilding | None = None

    def links(self, job: str) -> list[Link]:
        """The kept stores, for the new query `job`."""
        new = {old: number for number, old in self.alignment.kept.items()}
        return [
            Link(version, version.store._replace(job=job, operator=new[version.store.operator]))
            for version in self.logged.versions
            if version.store.operator in new
        ]

    def rebuilt_links(self, job: str) -> list[Link]:
        """The stores born with rebuilt state, for the new query `job`. Their numbers are the new ones."""
        born = {operator.number for operator in self.alignment.born}
        found = self.rebuilt.logged.versions if self.rebuilt else ()
        return [Link(one, one.store._replace(job=job)) for one in found if one.store.operator in born]

    def empty(self, job: str) -> list[StoreVersion]:
        """The stores born without state."""
        return [] if self.rebuilt else empty_stores(self.alignment.born, job, self.logged.batch_id)


def empty_stores(operators: Iterable[Operator], job: str, batch: int) -> list[StoreVersion]:
    """Returns the versions after `batch` of operators without state, with ids of their own."""
    return [
        StoreVersion(StoreId(job, operator.number, partition, store.name), Version(batch + 1, str(uuid.uuid4())))
        for operator in operators
        for partition in range(operator.partitions_used)
        for store in operator.stores
    ]


def examine(source: QueryCheckpoint, sketch: Path, batch: int | None, choices: Choices) -> Restructuring:
    """Reads both checkpoints, and aligns their operators. `batch`: None is the newest committed one.

    Raises PreconditionError and InvalidRequestError as `align` and `read_operators`, and PreconditionError when the new
    plan was made with other settings or sources, and when nothing changes. For a sketch with rebuilt state it raises
    PreconditionError also as `find_rebuilt`.
    """
    logged = source.logged(batch)
    rebuilt = find_rebuilt(source, sketch, logged.batch_id)
    _check_logs(source, QueryCheckpoint(sketch), logged.batch_id)
    planned = read_operators(sketch, logged.batch_id if rebuilt else None)
    alignment = align(read_operators(source.folder, logged.batch_id), planned, choices, rebuilt=rebuilt is not None)
    if not alignment.changes:
        raise PreconditionError(
            f"{sketch}: has the same stateful operators as {source.folder}; start the new code on that checkpoint"
        )
    committed = source.committed(logged.batch_id)
    named = {operator for operator, _ in committed.ids}
    if missing := set(alignment.kept.values()) - named:
        raise IntegrityError(f"{source.folder}: batch {logged.batch_id} names no state of operator {min(missing)}")
    if rebuilt:
        rebuilt.check_has({operator.number for operator in alignment.born})
    return Restructuring(source, sketch, logged, alignment, committed, rebuilt)


def rearrange(work: Path, plan: Restructuring, empty: Sequence[StoreVersion], rebuilt: Path | None = None) -> None:
    """Gives the unfinished checkpoint `work` the operators of the new plan, and one commit with their state.

    Commits before it would name state under the numbers of the former operators. `rebuilt`: the folder of
    `BranchFolder.copy_described`, of the checkpoint with rebuilt state; it is deleted.
    """
    state, former = work / "state", work / "state-of-former-operators"
    state.rename(former)
    kept = plan.alignment.kept
    for operator in (line.new for line in plan.alignment.lines if line.new is not None):
        number = operator.number
        written = rebuilt / "state" / str(number) if rebuilt else None
        if number in kept:
            written = former / str(kept[number])
        failpoints.hit("restructure.operator.before")
        described = plan.sketch / "state" / str(number)
        describe(state / str(number), operator, described, written, plan.logged.batch_id)
        failpoints.hit("restructure.operator.after")
    for folder in (former, *([rebuilt] if rebuilt else [])):
        shutil.rmtree(folder)
    checkpoint = QueryCheckpoint(work)
    batch = plan.logged.batch_id
    for number in checkpoint.batches("commits"):
        if number != batch:
            (work / "commits" / str(number)).unlink()
    failpoints.hit("restructure.commit.before")
    checkpoint.replace_commit(batch, checkpoint.commit_with_ids(batch, _ids(plan, empty)))
    failpoints.hit("restructure.commit.after")


def describe(target: Path, operator: Operator, described: Path, written: Path | None, batch: int) -> None:
    """Fills the folder `target` of an operator with the state after `batch`.

    `described`: its folder in the sketch. `written`: the folder of the operator that has written the state; None: there
    is no state.
    """
    if operator.versioned:
        _describe_versioned(target, described, written, batch)
    else:
        _describe(target, described, written or described)


def _describe(target: Path, described: Path, schemas: Path) -> None:
    for path in schemas.glob(f"0/**/{SCHEMA}"):
        _copy(path, target / path.relative_to(schemas))
    _copy(described / METADATA, target / METADATA)


def _describe_versioned(target: Path, described: Path, written: Path | None, batch: int) -> None:
    """Writes the metadata and the schema files of an operator with versions of them.

    `written`: the folder of the operator with the state, with the paths of the new checkpoint; None without state.
    Spark writes the schema file of a born operator with its first batch, and its metadata names none until then.
    """
    found = operator_metadata.newest(written or described)
    assert found is not None  # `read_operators` has read it

    def renumbered(path: str) -> str | None:
        if written is None:
            return None
        file, folder = operator_metadata.below(path), operator_metadata.SCHEMAS
        _copy(written / folder / file, target / folder / file)
        return operator_metadata.schema_path(operator_metadata.root(path), int(target.name), file)

    fields = operator_metadata.described(operator_metadata.read(found[1]), int(target.name), renumbered)
    operator_metadata.write(target / operator_metadata.VERSIONS / str(found[0] if written else batch), fields)


def _ids(plan: Restructuring, empty: Sequence[StoreVersion]) -> Mapping[int, Sequence[Sequence[str]]]:
    """The checkpoint ids of all stores, in the form of the commit log."""
    links = [*plan.links(""), *plan.rebuilt_links("")]
    ids = ids_of([*(StoreVersion(link.target, link.source.version) for link in links), *empty])
    return {line.new.number: ids[line.new.number] for line in plan.alignment.lines if line.new is not None}


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if not copy_file(source, target):
        raise PreconditionError(f"{source}: has been removed meanwhile; try again")


def _check_logs(source: QueryCheckpoint, sketch: QueryCheckpoint, batch: int) -> None:
    """Raises PreconditionError if the new code, started on the former checkpoint, would not get the sketch's plan."""
    former, planned = (_entry(c, number) for c, number in ((source, batch), (sketch, sketch.newest_offset())))
    for name, value in sorted(former.settings.items()):
        other = planned.settings.get(name, value)
        if name != PROVIDER_KEY and other != value:
            raise PreconditionError(
                f"{sketch.folder}: was planned with {name} = {other}, and the query goes on with {value}, which its "
                "checkpoint prescribes. Plan the new code with that"
            )
    if (former.version, former.sources) != (planned.version, planned.sources):
        raise PreconditionError(
            f"{sketch.folder}: reads {planned.sources} sources (offset log {planned.version}), and the query "
            f"{former.sources} ({former.version}). The sources must stay as they are, in the same order"
        )


@dataclass(frozen=True, slots=True)
class _Entry:
    version: str
    settings: Mapping[str, Any]
    sources: int


def _entry(checkpoint: QueryCheckpoint, batch: int) -> _Entry:
    """An entry of the offset log."""
    path = checkpoint.folder / "offsets" / str(batch)
    try:
        lines = read_text(path).rstrip("\n").split("\n")
    except OSError as error:
        raise IntegrityError(f"offset log entry {path} cannot be read: {error.strerror}") from error
    with reading(f"offset log entry {path}"):
        return _Entry(lines[0].strip(), json.loads(lines[1])["conf"], len(lines) - 2)

"""The checkpoint of a restructured query: that of a branch, with other operators.

The work is on files of a branch that has not got its name yet (`BranchFolder`). The former checkpoint is only read.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rhino_core import failpoints
from rhino_core.errors import IntegrityError, PreconditionError
from rhino_core.ids import StoreId, StoreVersion, Version
from spark_connector import operator_metadata
from spark_connector.query_checkpoint import PROVIDER_KEY, QueryCheckpoint
from spark_connector.query_logs import CommittedBatch, Logged
from spark_connector.restructure.alignment import Alignment, Choices, align
from spark_connector.restructure.operators import METADATA, SCHEMA, read_operators


@dataclass(frozen=True, slots=True)
class Link:
    """A version of the former query that becomes one of the new query's store `target`."""

    source: StoreVersion
    target: StoreId


@dataclass(frozen=True, slots=True)
class Restructuring:
    """What a new query gets. `logged`: the batch with which its state begins. `sketch`: checkpoint of the new plan."""

    source: QueryCheckpoint
    sketch: Path
    logged: Logged
    alignment: Alignment
    committed: CommittedBatch

    def links(self, job: str) -> list[Link]:
        """The stores that are kept, for the new query `job`."""
        new = {old: number for number, old in self.alignment.kept.items()}
        return [
            Link(version, version.store._replace(job=job, operator=new[version.store.operator]))
            for version in self.logged.versions
            if version.store.operator in new
        ]

    def empty(self, job: str) -> list[StoreVersion]:
        """The stores that are born, with ids of their own."""
        return [
            StoreVersion(
                StoreId(job, operator.number, partition, store.name),
                Version(self.logged.batch_id + 1, str(uuid.uuid4())),
            )
            for operator in self.alignment.born
            for partition in range(operator.partitions_used)
            for store in operator.stores
        ]


def examine(source: QueryCheckpoint, sketch: Path, batch: int | None, choices: Choices) -> Restructuring:
    """Reads both checkpoints, and aligns their operators. `batch`: None is the newest committed one.

    Raises PreconditionError and InvalidRequestError as `align` and `read_operators`, and PreconditionError when the new
    plan was made with other settings or sources, and when nothing changes.
    """
    logged = source.logged(batch)
    _check_logs(source, QueryCheckpoint(sketch), logged.batch_id)
    alignment = align(read_operators(source.folder, logged.batch_id), read_operators(sketch), choices)
    if not alignment.changes:
        raise PreconditionError(
            f"{sketch}: has the same stateful operators as {source.folder}; start the new code on that checkpoint"
        )
    committed = source.committed(logged.batch_id)
    named = {operator for operator, _ in committed.ids}
    if missing := set(alignment.kept.values()) - named:
        raise IntegrityError(f"{source.folder}: batch {logged.batch_id} names no state of operator {min(missing)}")
    return Restructuring(source, sketch, logged, alignment, committed)


def rearrange(work: Path, plan: Restructuring, empty: Sequence[StoreVersion]) -> None:
    """Gives the unfinished checkpoint `work` the operators of the new plan, and one commit that names their state.

    Commits before it would name state under the numbers of the former operators.
    """
    state, former = work / "state", work / "state-of-former-operators"
    state.rename(former)
    kept = plan.alignment.kept
    for operator in (line.new for line in plan.alignment.lines if line.new is not None):
        number = operator.number
        target, described = state / str(number), plan.sketch / "state" / str(number)
        written = former / str(kept[number]) if number in kept else None
        failpoints.hit("restructure.operator.before")
        if operator.versioned:
            _describe_versioned(target, described, written, plan.logged.batch_id)
        else:
            _describe(target, described, written or described)
        failpoints.hit("restructure.operator.after")
    shutil.rmtree(former)
    checkpoint = QueryCheckpoint(work)
    batch = plan.logged.batch_id
    for number in checkpoint.batches("commits"):
        if number != batch:
            (work / "commits" / str(number)).unlink()
    failpoints.hit("restructure.commit.before")
    checkpoint.replace_commit(batch, checkpoint.commit_with_ids(batch, _ids(plan, empty)))
    failpoints.hit("restructure.commit.after")


def _describe(target: Path, described: Path, schemas: Path) -> None:
    for path in schemas.glob(f"0/**/{SCHEMA}"):
        _copy(path, target / path.relative_to(schemas))
    _copy(described / METADATA, target / METADATA)


def _describe_versioned(target: Path, described: Path, written: Path | None, batch: int) -> None:
    """Writes the metadata and the schema files of an operator that has versions of them.

    `written`: the folder of the former operator, in the same checkpoint; None if it is born. Spark writes the schema
    file of an operator that is born with its first batch, and its metadata names none until then.
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
    ids: dict[int, list[list[str]]] = {}
    for line in plan.alignment.lines:
        if line.new is None:
            continue
        if line.old is not None:
            former = [
                (partition, named) for (op, partition), named in plan.committed.ids.items() if op == line.old.number
            ]
            ids[line.new.number] = [list(named) for _, named in sorted(former)]
            continue
        partitions: dict[int, list[str]] = {}
        for store, version in empty:
            if store.operator == line.new.number:
                partitions.setdefault(store.partition, []).append(version.checkpoint_id)
        ids[line.new.number] = [partitions[partition] for partition in sorted(partitions)]
    return ids


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


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
    lines = list(_lines(checkpoint.folder / "offsets" / str(batch)))
    try:
        return _Entry(lines[0].strip(), json.loads(lines[1])["conf"], len(lines) - 2)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise IntegrityError(f"{checkpoint.folder}: offset log entry {batch} is not readable: {error}") from error


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().rstrip("\n").split("\n")
    except OSError as error:
        raise IntegrityError(f"offset log entry {path} cannot be read: {error.strerror}") from error

"""Restructured queries: stateful operators inserted, removed or reordered, and the state of the others kept."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rhino.client.links import TIMEOUT_S, Made, Progress, ask_all, check_stored, holders_of, take_back
from rhino.client.running import refuse_running
from rhino_core.ids import GroupId, StoreVersion
from rhino_core.rpc import convert
from rhino_pb import peer_pb2
from spark_connector.branch.folder import BranchFolder
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.restructure.alignment import Choices, Line
from spark_connector.restructure.folder import Restructuring, examine, rearrange

NO_CHOICES = Choices()


@dataclass(frozen=True, slots=True)
class OperatorFate:
    """What becomes of a stateful operator. `fate`: same, moved, born or dropped. `old`, `new`: its ids in Spark."""

    fate: str
    old: int | None
    new: int | None
    name: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Restructured:
    """A query that was restructured. `linked_bytes`: of the files on their owners, none of which was copied.

    `stores` keep their state, and `empty_stores` begin without any.
    """

    job: str
    source_job: str
    checkpoint: str
    batch: int
    operators: tuple[OperatorFate, ...]
    stores: int
    empty_stores: int
    files: int
    linked_bytes: int
    workers: tuple[str, ...]
    duration_s: float


def restructure(
    manager: str,
    source: Path,
    target: Path,
    sketch: Path,
    *,
    choices: Choices = NO_CHOICES,
    batch: int | None = None,
    dry_run: bool = False,
    report: Progress = lambda *_: None,
) -> Restructured:
    """Makes a query checkpoint `target` for new code with other stateful operators, which keep the state of `source`.

    The query of `source` is stopped. `sketch` is the checkpoint of a query that the new code has begun, with any sink:
    it describes the new operators. `batch`: the batch of `source` after which the new query begins; None is the newest
    committed one. The query of `source` is not changed, so going back is to start the former code again.

    Raises AlreadyThereError if `target` exists, ConflictError if the query runs, PreconditionError when the operators
    cannot be paired (`align` says how), UnknownError if a version is not stored any more, UnavailableError. Nothing
    stays of a call that has failed.
    """
    started = time.monotonic()
    plan = examine(QueryCheckpoint(source), sketch, batch, choices)
    job = plan.source.job
    refuse_running(manager, job, "or branch it, and restructure the branch")
    holders = holders_of(manager, job)
    groups = {version.store.group for version in plan.logged.versions if _kept(plan, version)}
    check_stored(source, job, groups, holders)
    made = Made()
    with BranchFolder(plan.source, target, plan.logged.batch_id) as folder:
        empty = plan.empty(folder.job)
        if not dry_run:
            folder.fill()
            rearrange(folder.work, plan, empty)
            try:
                made = ask_all([*_items(plan, folder.job, empty)], holders, _request, report)
                folder.finish()
            except BaseException as error:
                take_back(manager, folder.job, error)
                raise
        return Restructured(
            "" if dry_run else folder.job,
            job,
            str(target.absolute()),
            plan.logged.batch_id,
            tuple(map(_fate, plan.alignment.lines)),
            len(plan.links(folder.job)),
            len(empty),
            made.files,
            made.bytes,
            tuple(sorted(made.workers)),
            time.monotonic() - started,
        )


_Item = peer_pb2.StoreLink | peer_pb2.EmptyStore


def _items(plan: Restructuring, job: str, empty: Sequence[StoreVersion]) -> Iterator[tuple[GroupId, _Item]]:
    """What workers are asked for. A store that is born goes to the worker that has a kept one of its partition."""
    for link in plan.links(job):
        source, target = convert.store_version_to_pb(link.source), convert.store_to_pb(link.target)
        yield link.source.store.group, peer_pb2.StoreLink(source=source, target=target)
    kept = sorted({version.store.group for version in plan.logged.versions if _kept(plan, version)})
    beside = {group.partition: group for group in reversed(kept)}
    for version in empty:
        like = beside.get(version.store.partition, kept[0])
        message = convert.store_version_to_pb(version)
        yield like, peer_pb2.EmptyStore(version=message, like=convert.group_to_pb(like))


def _request(asked: Sequence[_Item]) -> peer_pb2.RestructureRequest:
    links = [item for item in asked if isinstance(item, peer_pb2.StoreLink)]
    empty = [item for item in asked if isinstance(item, peer_pb2.EmptyStore)]
    return peer_pb2.RestructureRequest(links=links, empty=empty, timeout_s=TIMEOUT_S)


def _kept(plan: Restructuring, version: StoreVersion) -> bool:
    return version.store.operator in plan.alignment.kept.values()


def _fate(line: Line) -> OperatorFate:
    operator = line.new or line.old
    assert operator is not None
    old, new = (one.number if one else None for one in (line.old, line.new))
    return OperatorFate(line.fate.value, old, new, operator.name, operator.shown_key, operator.shown_state)

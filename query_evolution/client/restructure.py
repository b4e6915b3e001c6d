"""Restructured queries: stateful operators inserted, removed or reordered, and the state of the others kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from query_evolution.branches.folder import BranchFolder
from query_evolution.client.links import (
    Item,
    Made,
    Progress,
    ask_all,
    check_stored,
    empty_item,
    holders_of,
    link_item,
    take_back,
)
from query_evolution.structure.alignment import Choices, Line
from query_evolution.structure.folder import Restructuring, examine, rearrange
from rhino.client.running import refuse_running
from rhino_core.ids import GroupId, StoreVersion
from spark_connector.query_checkpoint import QueryCheckpoint

NO_CHOICES = Choices()


@dataclass(frozen=True, slots=True)
class OperatorFate:
    """The fate of a stateful operator. `fate`: same, moved, born, rebuilt or dropped. `old`, `new`: ids in Spark.

    A born operator begins without state. A rebuilt one is born with the state of former rows.
    """

    fate: str
    old: int | None
    new: int | None
    name: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Restructured:
    """A restructured query. `linked_bytes`: of the files on their owners. None of them was copied.

    `stores` keep their state, `rebuilt_stores` have rebuilt state, and `empty_stores` begin without any. `rebuilt_job`:
    the id of the rebuilding query; empty: none. `rebuilt_from`: since when it knows the rows.
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
    rebuilt_stores: int = 0
    rebuilt_job: str = ""
    rebuilt_from: str = ""


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
    """Makes a query checkpoint `target` for new code with other stateful operators. These keep the state of `source`.

    The query of `source` is stopped. `sketch` is the checkpoint of a query begun by the new code, with any sink: it
    describes the new operators. If `rebuild` has made it, born operators get its state; otherwise they begin empty.
    `batch`: the last batch of `source` before the new query; None is the newest committed one. The query of `source` is
    not changed, so going back is to start the former code again.

    Nothing stays of a failed call. Raises AlreadyThereError if `target` exists, and ConflictError if the query runs.
    Raises PreconditionError if operators cannot be paired (see `align`), and if rebuilt state belongs to another batch.
    Raises UnknownError if a version is not stored any more, and UnavailableError.
    """
    started = time.monotonic()
    plan = examine(QueryCheckpoint(source), sketch, batch, choices)
    job = plan.source.job
    refuse_running(manager, plan.source, "or branch it, and restructure the branch")
    holders = {**holders_of(manager, job)}
    groups = {version.store.group for version in plan.logged.versions if _kept(plan, version)}
    check_stored(source, job, groups, holders)
    if plan.rebuilt:
        refuse_running(manager, plan.rebuilt.checkpoint)
        holders |= holders_of(manager, plan.rebuilt.checkpoint.job)
        rebuilt_groups = {link.source.store.group for link in plan.rebuilt_links("")}
        check_stored(sketch, plan.rebuilt.checkpoint.job, rebuilt_groups, holders)
    made = Made()
    with BranchFolder(plan.source, target, plan.logged.batch_id) as folder:
        empty = plan.empty(folder.job)
        if not dry_run:
            folder.fill()
            described = folder.copy_described(plan.rebuilt.checkpoint) if plan.rebuilt else None
            rearrange(folder.work, plan, empty, described)
            try:
                for items in _steps(plan, folder.job, empty):
                    made += ask_all(items, holders, report)
                folder.finish()
            except BaseException as error:
                take_back(manager, folder.job, error)
                raise
        return _described(plan, "" if dry_run else folder.job, folder.target, made, time.monotonic() - started)


def _described(plan: Restructuring, job: str, target: Path, made: Made, duration_s: float) -> Restructured:
    rebuilt = plan.rebuilt
    return Restructured(
        job,
        plan.source.job,
        str(target),
        plan.logged.batch_id,
        tuple(map(_fate, plan.alignment.lines)),
        len(plan.links(job)),
        len(plan.empty(job)),
        made.files,
        made.bytes,
        tuple(sorted(made.workers)),
        duration_s,
        len(plan.rebuilt_links(job)),
        rebuilt.checkpoint.job if rebuilt else "",
        rebuilt.origin.shown if rebuilt else "",
    )


def _steps(plan: Restructuring, job: str, empty: Sequence[StoreVersion]) -> Iterator[list[tuple[GroupId, Item]]]:
    """The requests to workers, one step after the other.

    Kept state comes first: the new query gets the settings of its first group, and these are the settings of the former
    query.
    """
    kept = [link_item(link.source, link.target) for link in plan.links(job)]
    like = like_of({group for group, _ in kept})
    yield [*kept, *(empty_item(version, like(version.store.partition)) for version in empty)]
    if rebuilt := [link_item(link.source, link.target) for link in plan.rebuilt_links(job)]:
        yield rebuilt


def like_of(groups: Collection[GroupId]) -> Callable[[int], GroupId]:
    """Returns the group that has a partition: an empty store goes to the worker with state of its partition."""
    ordered = sorted(groups)
    beside = {group.partition: group for group in reversed(ordered)}
    return lambda partition: beside.get(partition, ordered[0])


def _kept(plan: Restructuring, version: StoreVersion) -> bool:
    return version.store.operator in plan.alignment.kept.values()


def _fate(line: Line) -> OperatorFate:
    operator = line.new or line.old
    assert operator is not None
    old, new = (one.number if one else None for one in (line.old, line.new))
    return OperatorFate(line.fate.value, old, new, operator.name, operator.shown_key, operator.shown_state)

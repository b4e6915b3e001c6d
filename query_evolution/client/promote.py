"""Promotion: the branch of a query takes its place after a batch, with the state of either."""

from __future__ import annotations

import enum
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from query_evolution.client.branch import branch as make_branch
from query_evolution.shadows.following import check_followed, copy_sources
from query_evolution.shadows.report import Results
from query_evolution.structure.operators import read_operators
from rhino.client.running import refuse_running
from rhino_core.errors import ConflictError, InvalidRequestError, PreconditionError, UnknownError
from spark_connector.query_checkpoint import QueryCheckpoint, replace_file


class StateOf(enum.StrEnum):
    """The query with the state for the new code."""

    LIVE = "live"
    BRANCH = "branch"


@dataclass(frozen=True, slots=True)
class Promoted:
    """The promoted query. `checkpoint`: for the start of the new code, with the sink of the live query.

    `batch`: the last one of the live query. `planned`: whether the live query had planned the next one; then the new
    code runs it with the same rows. `compared`, `different`: batches of the shadow run of the branch.
    """

    job: str
    source_job: str
    checkpoint: str
    batch: int
    planned: bool
    state: StateOf
    compared: int
    different: int
    duration_s: float


def promote(
    manager: str, live: Path, branch: Path, state: StateOf | str, *, target: Path | None = None, dry_run: bool = False
) -> Promoted:
    """Lets the code of a branch take the place of the live query. Its owner has stopped the live query.

    `live`, `branch`: the two checkpoints. `state`: "branch" goes on with the state computed by the new code, in the
    checkpoint `branch`. It must have followed the live query up to its last committed batch. "live" goes on with the
    state of the live query: `target` becomes a new branch after this batch, and `branch` stays as it is.

    The checkpoint of the live query is not changed, so going back is to start the former code on it.

    Raises ConflictError if one of both queries runs, or changes meanwhile. Raises PreconditionError for a branch behind
    or ahead of it, or one with other rows; with the state of the live query also for other stateful operators. Raises
    InvalidRequestError for a `target` that is missing or not needed. The errors of `branch` are raised, too.
    """
    started = time.monotonic()
    chosen = _state(state, target)
    former, shadow = QueryCheckpoint(live), QueryCheckpoint(branch)
    for one in (former, shadow):
        refuse_running(manager, one)
    before = former.fingerprint(), shadow.fingerprint()
    batch = former.newest_commit()
    planned = former.newest_offset() > batch
    if chosen is StateOf.BRANCH:
        check_followed(former, shadow)
        _check_reached(former, shadow, batch)
    else:
        _check_operators(former, shadow)
    if (former.fingerprint(), shadow.fingerprint()) != before:
        raise ConflictError(f"{live}: the logs of a query have changed meanwhile, so a driver runs it; stop it first")
    job, checkpoint = shadow.job, shadow.folder.absolute()
    compared, different = _compared(shadow)
    if target is not None:
        made = make_branch(manager, live, target, batch=batch, dry_run=dry_run)
        job, checkpoint = made.job, target.absolute()
    elif not dry_run:
        _take_over(former, shadow, batch, planned=planned)
    duration_s = time.monotonic() - started
    done = Promoted(job, former.job, str(checkpoint), batch, planned, chosen, compared, different, duration_s)
    if chosen is StateOf.BRANCH and not dry_run:
        Results(shadow).promote(asdict(done))
    return done


def _state(given: StateOf | str, target: Path | None) -> StateOf:
    try:
        state = StateOf(given)
    except ValueError:
        raise InvalidRequestError(f"state {given!r}: must be one of {', '.join(StateOf)}") from None
    if state is StateOf.LIVE and target is None:
        raise InvalidRequestError("with the state of the live query, say where its new branch is to be: a new folder")
    if state is StateOf.BRANCH and target is not None:
        raise InvalidRequestError(f"{target}: with the state of the branch, the checkpoint is that of the branch")
    return state


def _check_reached(former: QueryCheckpoint, shadow: QueryCheckpoint, batch: int) -> None:
    reached = shadow.newest_commit()
    if reached < batch:
        raise PreconditionError(
            f"{shadow.folder}: its newest batch is {reached}, and {former.folder} has committed {batch}; let it follow "
            "with query_evolution.shadow() until then, or go on with the state of the live query"
        )
    if reached > batch:
        raise PreconditionError(
            f"{shadow.folder}: has committed batch {reached}, and {former.folder} only {batch}, so the sink lacks the "
            "output of the batches between; go on with the state of the live query"
        )


def _check_operators(former: QueryCheckpoint, shadow: QueryCheckpoint) -> None:
    mine, others = (read_operators(one.folder) for one in (former, shadow))
    if mine != others:
        lists = " and ".join("; ".join(map(str, found)) for found in (mine, others))
        raise PreconditionError(
            f"{shadow.folder}: has other stateful operators than {former.folder} ({lists}), so its code cannot read "
            f"that state; `rhino restructure --sketch {shadow.folder}` keeps the state of those that both have"
        )


def _take_over(former: QueryCheckpoint, shadow: QueryCheckpoint, batch: int, *, planned: bool) -> None:
    """Gives the branch the rows of the live query's planned and uncommitted batch."""
    copy_sources(former, shadow)
    next_one = shadow.folder / "offsets" / str(batch + 1)
    if planned and not next_one.exists():
        replace_file(next_one, (former.folder / "offsets" / str(batch + 1)).read_bytes())


def _compared(shadow: QueryCheckpoint) -> tuple[int, int]:
    try:
        report = Results(shadow).report()
    except UnknownError:
        return 0, 0
    return len(report.batches), len(report.different)

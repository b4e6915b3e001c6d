"""`rhino forget`, `rhino moved` and `rhino owner`: the manager's record of one query, or of a lost worker."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.columns import Cell, say_to, show_columns
from rhino.cli.output import confirm, console, say, say_json
from rhino.client.handover_client import HandoverClient
from rhino.client.query_record import (
    CALL_TIMEOUT_S,
    ForgottenJob,
    ForgottenWorker,
    forget_worker,
    move_checkpoint,
    set_owner,
)
from rhino_core.errors import InvalidRequestError
from rhino_core.text import count, duration
from rhino_model.codec import plain


@dataclass(frozen=True, slots=True)
class ForgetArguments:
    """Either `job` or `worker` is given. `now` and `undo` are for jobs."""

    job: str
    worker: str
    now: bool
    undo: bool
    dry_run: bool
    yes: bool
    as_json: bool


def run_forget(manager: str, arguments: ForgetArguments) -> int:
    _check(arguments)
    if arguments.undo:
        return _undo(manager, arguments)
    dry_run = arguments.dry_run
    if not dry_run and not arguments.yes:
        _ask(_forget(manager, arguments, dry_run=True))
    result = _forget(manager, arguments, dry_run=dry_run)
    if arguments.as_json:
        say_json({"dry_run": dry_run, **plain(result)})
    else:
        _show(result, console(), "would be" if dry_run else "is")
    return exit_codes.OK


def _check(arguments: ForgetArguments) -> None:
    """Raises InvalidRequestError for contradictory options."""
    if bool(arguments.job) == bool(arguments.worker):
        raise InvalidRequestError("--job or --worker: give one of them")
    if arguments.worker and (arguments.now or arguments.undo):
        raise InvalidRequestError(f"{'--now' if arguments.now else '--undo'}: only with --job")
    if arguments.undo and (arguments.now or arguments.dry_run):
        raise InvalidRequestError(f"--undo and {'--now' if arguments.now else '--dry-run'}: give only one of them")


def _undo(manager: str, arguments: ForgetArguments) -> int:
    with HandoverClient(manager, timeout_s=CALL_TIMEOUT_S) as client:
        job = client.undo_forget_job(arguments.job)
    if arguments.as_json:
        say_json({"job": job, "undone": True})
    else:
        say(f"job {job}: its state stays. The query can be started again")
    return exit_codes.OK


def _forget(manager: str, arguments: ForgetArguments, *, dry_run: bool) -> ForgottenJob | ForgottenWorker:
    if arguments.worker:
        return forget_worker(manager, arguments.worker, dry_run=dry_run)
    with HandoverClient(manager, timeout_s=CALL_TIMEOUT_S) as client:
        return client.forget_job(arguments.job, now=arguments.now, dry_run=dry_run)


def _ask(planned: ForgottenJob | ForgottenWorker) -> None:
    """Shows the state to delete, and asks."""
    _show(planned, console(error=True), "would be")
    if isinstance(planned, ForgottenJob):
        size = decimal(sum(usage.bytes for usage in planned.workers))
        what = f"all state of job {planned.job}: {size} on {count(len(planned.workers), 'worker')}"
        when = f"in {duration(planned.left_s)}. Until then --undo takes it back, and the query does not start"
        confirm(f"This deletes {what}, {when if planned.left_s else 'at once. It cannot be undone'}", yes=False)
    else:
        lost = len(planned.only_member)
        confirm(
            f"This gives up worker {planned.worker_id}, and the state of {lost} groups that no other worker has. Its "
            "disk is not touched: a sidecar that starts on it brings back what it stores",
            yes=False,
        )


def _show(result: ForgottenJob | ForgottenWorker, out: Console, verb: str) -> None:
    if isinstance(result, ForgottenJob):
        _show_job(result, out, verb)
    else:
        _show_worker(result, out, verb)


def _show_job(result: ForgottenJob, out: Console, verb: str) -> None:
    what, when = f"job {result.job}: the state of {result.groups} replica groups", ""
    if result.left_s:
        verb = "will be" if verb == "is" else verb
        when = f" in {duration(result.left_s)}; until then `rhino forget --job {result.job} --undo` takes it back"
    say_to(out, f"{what} {verb} deleted{when}")
    rows = [
        (
            usage.worker_id,
            "live" if usage.live else "absent: will delete when it comes back",
            str(usage.files),
            decimal(usage.bytes),
        )
        for usage in result.workers
    ]
    show_columns(out, ("worker", "state", "files", "bytes"), rows)


def _show_worker(result: ForgottenWorker, out: Console, verb: str) -> None:
    size = decimal(result.bytes)
    say_to(out, f"worker {result.worker_id} {verb} forgotten: member of {result.groups} groups, {size}")
    for group in result.only_member:
        say_to(out, Cell(f"group {group} has no other member: its state {verb} given up", "red"))


def run_moved(manager: str, job: str, location: str, *, as_json: bool) -> int:
    done = move_checkpoint(manager, job, location)
    if as_json:
        say_json(done)
    else:
        say(f"query {done.job}: its checkpoint is at {done.location} now; runs from other locations are refused")
    return exit_codes.OK


def run_owner(manager: str, job: str, to: str, *, next_driver: bool, as_json: bool) -> int:
    if bool(to) is next_driver:
        raise InvalidRequestError("give --to NAME, or --next-driver, and not both")
    done = set_owner(manager, job, to)
    if as_json:
        say_json(done)
    else:
        say(f"query {done.job}: {f'only the driver {done.owner} runs it' if done.owner else 'the next driver gets it'}")
    return exit_codes.OK

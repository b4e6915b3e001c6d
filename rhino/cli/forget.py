"""`rhino forget`: deletes the state of a query that will not run again, or gives up a lost worker."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.columns import Cell, say_to, show_columns
from rhino.cli.confirm import confirm
from rhino.cli.output import console, say_json
from rhino.client.codec import plain
from rhino.client.forget import ForgottenJob, ForgottenWorker, forget_job, forget_worker
from rhino_core.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class ForgetArguments:
    """Either `job` or `worker` is given."""

    job: str
    worker: str
    dry_run: bool
    yes: bool
    as_json: bool


def run_forget(manager: str, arguments: ForgetArguments) -> int:
    """Executes the command and returns its exit code. The caller handles RhinoErrors."""
    if bool(arguments.job) == bool(arguments.worker):
        raise InvalidRequestError("--job or --worker: give one of them")
    dry_run = arguments.dry_run
    if not dry_run and not arguments.yes:
        _ask(_forget(manager, arguments, dry_run=True))
    result = _forget(manager, arguments, dry_run=dry_run)
    if arguments.as_json:
        say_json({"dry_run": dry_run, **plain(result)})
    else:
        _show(result, console(), "would be" if dry_run else "is")
    return exit_codes.OK


def _forget(manager: str, arguments: ForgetArguments, *, dry_run: bool) -> ForgottenJob | ForgottenWorker:
    if arguments.job:
        return forget_job(manager, arguments.job, dry_run=dry_run)
    return forget_worker(manager, arguments.worker, dry_run=dry_run)


def _ask(planned: ForgottenJob | ForgottenWorker) -> None:
    """Shows what would be deleted, and asks."""
    _show(planned, console(error=True), "would be")
    if isinstance(planned, ForgottenJob):
        size = decimal(sum(usage.bytes for usage in planned.workers))
        workers = len(planned.workers)
        confirm(
            f"This deletes all state of job {planned.job}: {size} on {workers} workers. It cannot be undone", yes=False
        )
    else:
        lost = len(planned.only_member)
        confirm(
            f"This gives up worker {planned.worker_id}, and the state of {lost} groups that no other worker has. It "
            "cannot be undone",
            yes=False,
        )


def _show(result: ForgottenJob | ForgottenWorker, out: Console, verb: str) -> None:
    if isinstance(result, ForgottenJob):
        _show_job(result, out, verb)
    else:
        _show_worker(result, out, verb)


def _show_job(result: ForgottenJob, out: Console, verb: str) -> None:
    say_to(out, f"job {result.job}: the state of {result.groups} replica groups {verb} deleted")
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

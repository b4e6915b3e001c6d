"""`rhino forget`: deletes the state of a query that will not run again, or gives up a lost worker."""

from __future__ import annotations

from rich.filesize import decimal
from rich.table import Table

from rhino.cli import exit_codes
from rhino.cli.output import console, say_json, shown
from rhino.client.codec import plain
from rhino.client.forget import ForgottenJob, ForgottenWorker, forget_job, forget_worker
from rhino_core.errors import InvalidRequestError


def run_forget(manager: str, job: str, worker: str, *, dry_run: bool, as_json: bool) -> int:
    """Executes the command and returns its exit code. The caller handles RhinoErrors."""
    if bool(job) == bool(worker):
        raise InvalidRequestError("--job or --worker: give one of them")
    result = forget_job(manager, job, dry_run=dry_run) if job else forget_worker(manager, worker, dry_run=dry_run)
    if as_json:
        say_json({"dry_run": dry_run, **plain(result)})
    elif isinstance(result, ForgottenJob):
        _show_job(shown(result), dry_run=dry_run)
    else:
        _show_worker(shown(result), dry_run=dry_run)
    return exit_codes.OK


def _show_job(result: ForgottenJob, *, dry_run: bool) -> None:
    table = Table("worker", "state", "files", "bytes", show_edge=False)
    for usage in result.workers:
        state = "live" if usage.live else "absent: will delete when it comes back"
        table.add_row(usage.worker_id, state, str(usage.files), decimal(usage.bytes))
    out = console()
    out.print(f"job {result.job}: {result.groups} replica groups {'would be' if dry_run else 'are'} forgotten")
    out.print(table)


def _show_worker(result: ForgottenWorker, *, dry_run: bool) -> None:
    verb = "would be" if dry_run else "is"
    out = console()
    out.print(f"worker {result.worker_id} {verb} forgotten: member of {result.groups} groups, {decimal(result.bytes)}")
    for group in result.only_member:
        out.print(f"[red]group {group} has no other member: its state {verb} given up[/]")

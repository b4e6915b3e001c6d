"""`rhino forget`: a job that has ended for good, or a worker that is lost for good."""

from __future__ import annotations

import dataclasses
import json

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from rhino.cli import exit_codes
from rhino.errors import InvalidRequestError
from rhino.rpc.forget import ForgottenJob, ForgottenWorker, forget_job, forget_worker


def run_forget(manager: str, job: str, worker: str, *, dry_run: bool, as_json: bool) -> int:
    """Carries out the command; returns its exit code. RhinoErrors are left to the caller."""
    if bool(job) == bool(worker):
        raise InvalidRequestError("forget takes one of --job and --worker")
    done = forget_job(manager, job, dry_run=dry_run) if job else forget_worker(manager, worker, dry_run=dry_run)
    if as_json:
        print(json.dumps({"dry_run": dry_run, **dataclasses.asdict(done)}, indent=2))
    elif isinstance(done, ForgottenJob):
        _show_job(done, dry_run=dry_run)
    else:
        _show_worker(done, dry_run=dry_run)
    return exit_codes.OK


def _show_job(done: ForgottenJob, *, dry_run: bool) -> None:
    table = Table("worker", "state", "files", "bytes", show_edge=False)
    for usage in done.workers:
        state = "live" if usage.live else "absent: deletes when it comes back"
        table.add_row(usage.worker_id, state, str(usage.files), decimal(usage.bytes))
    console = Console()
    console.print(f"job {done.job}: {done.groups} replica groups {'would be' if dry_run else 'are'} forgotten")
    console.print(table)


def _show_worker(done: ForgottenWorker, *, dry_run: bool) -> None:
    verb = "would be" if dry_run else "is"
    console = Console()
    console.print(f"worker {done.worker_id} {verb} forgotten: member of {done.groups} groups, {decimal(done.bytes)}")
    for group in done.only_member:
        console.print(f"[red]group {group} has no other member: its state {verb} given up[/]")

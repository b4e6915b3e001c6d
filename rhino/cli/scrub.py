"""`rhino scrub`: every stored file of some workers is checked now. Data on stdout, progress on stderr."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from rhino.cli import exit_codes
from rhino.errors import RhinoError, UnavailableError, UnknownError
from rhino.rpc.overview import WorkerView, fetch_overview
from rhino.rpc.scrub import NO_SCRUB, ScrubView, scrub_status, start_scrub

POLL_S = 0.3
SILENCE_S = 15.0  # a worker that restarts goes on with its scrub


@dataclasses.dataclass(slots=True)
class Scrubbed:
    """One worker's scrub. `error`: it could not be asked any more."""

    worker: WorkerView
    scrub: ScrubView = NO_SCRUB
    number: int = 0  # of the scrub that was started
    silent_since: float | None = None
    error: str = ""

    @property
    def ended(self) -> bool:
        return self.scrub.number > self.number or (self.scrub.number == self.number and not self.scrub.running)


def run_scrub(manager: str, workers: list[str], *, wait: bool, repair_wait_s: float, as_json: bool) -> int:
    """Carries out the command; returns its exit code. RhinoErrors are left to the caller."""
    scrubs = [Scrubbed(worker) for worker in _chosen(fetch_overview(manager).workers, workers)]
    for one in scrubs:
        one.scrub = start_scrub(one.worker.worker_id, one.worker.peer_address)
        one.number = one.scrub.number
    if wait:
        _follow(manager, scrubs, repair_wait_s)
    _show(scrubs, as_json=as_json)
    return _exit_code(scrubs) if wait else exit_codes.OK


def _chosen(known: Iterable[WorkerView], names: list[str]) -> list[WorkerView]:
    """The named workers, or all that are not lost. Raises UnknownError, UnavailableError."""
    by_id = {worker.worker_id: worker for worker in known}
    for name in names:
        if name not in by_id:
            raise UnknownError(
                f"worker {name!r} is not known; `rhino status` lists workers: {', '.join(sorted(by_id))}"
            )
        if by_id[name].state == "lost":
            raise UnavailableError(f"worker {name!r} is lost: it can be scrubbed when it is back")
    chosen = [by_id[name] for name in dict.fromkeys(names)] if names else list(by_id.values())
    live = [worker for worker in chosen if worker.state != "lost"]
    if not live:
        raise UnavailableError("no live worker to scrub")
    for worker in chosen:
        if worker not in live:
            Console(stderr=True).print(f"worker {worker.worker_id} is lost and is not scrubbed")
    return live


def _follow(manager: str, scrubs: list[Scrubbed], repair_wait_s: float) -> None:
    """Until every scrub has ended and what it found is repaired, or the time for repairs is over."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bars = [progress.add_task(one.worker.worker_id, total=1.0, note="") for one in scrubs]
        repair_ends: float | None = None
        while True:
            for one, bar in zip(scrubs, bars, strict=True):
                _look(manager, one)
                _draw(progress, bar, one)
            going = [one for one in scrubs if not one.error]
            if all(one.ended for one in going):
                now = time.monotonic()
                repair_ends = now + repair_wait_s if repair_ends is None else repair_ends
                if all(one.scrub.missing == 0 for one in going) or now >= repair_ends:
                    return
            time.sleep(POLL_S)


def _look(manager: str, one: Scrubbed) -> None:
    """Asks the worker; one that has been silent for long is given up."""
    if one.error:
        return
    try:
        one.scrub = scrub_status(one.worker.worker_id, one.worker.peer_address)
        one.silent_since = None
    except RhinoError as error:
        one.silent_since = one.silent_since or time.monotonic()
        if time.monotonic() - one.silent_since > SILENCE_S:
            one.error = str(error)
        else:
            one.worker = _moved(manager, one.worker)


def _moved(manager: str, worker: WorkerView) -> WorkerView:
    """A restarted sidecar may have another address; while the manager is away the known one stays."""
    try:
        workers = fetch_overview(manager).workers
    except UnavailableError:
        return worker
    return next((now for now in workers if now.worker_id == worker.worker_id), worker)


def _draw(progress: Progress, bar: TaskID, one: Scrubbed) -> None:
    scrub = one.scrub
    share = 1.0 if one.ended or not scrub.total_bytes else min(scrub.checked_bytes / scrub.total_bytes, 1.0)
    note = f"{decimal(scrub.checked_bytes)} of {decimal(scrub.total_bytes)}"
    if scrub.errors:
        note += f", {scrub.errors} damaged, {scrub.repaired} repaired"
    progress.update(bar, completed=share, note=one.error or note)


def _show(scrubs: list[Scrubbed], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"worker_id": one.worker.worker_id, "error": one.error, **dataclasses.asdict(one.scrub)} for one in scrubs
        ]
        print(json.dumps({"workers": rows}, indent=2))
        return
    table = Table("worker", "state", "checked", "files", "damaged", "repaired", show_edge=False)
    for one in scrubs:
        state = "not reachable" if one.error else "ended" if one.ended else "running"
        found = (str(one.scrub.checked_files), str(one.scrub.errors), str(one.scrub.repaired))
        table.add_row(one.worker.worker_id, state, decimal(one.scrub.checked_bytes), *found)
    Console().print(table)


def _exit_code(scrubs: list[Scrubbed]) -> int:
    if any(one.scrub.missing for one in scrubs):
        return exit_codes.FAILED
    if any(one.error for one in scrubs):
        return exit_codes.UNREACHABLE
    return exit_codes.REPAIRED if any(one.scrub.errors for one in scrubs) else exit_codes.OK

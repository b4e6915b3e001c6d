"""`rhino scrub`: checks every stored file of some workers now. Data on stdout, progress on stderr."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable

from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from rhino.cli import exit_codes
from rhino.cli.columns import Row, show_columns
from rhino.cli.output import console, say, say_json, shown
from rhino.client.overview import WorkerView, fetch_overview
from rhino.client.scrub import NO_SCRUB, ScrubView, scrub_status, start_scrub
from rhino_core.errors import RhinoError, UnavailableError, UnknownError
from rhino_model.codec import plain

POLL_S = 0.3
SILENCE_S = 15.0  # a worker continues its scrub after a restart


@dataclasses.dataclass(slots=True)
class WorkerScrub:
    """One worker's scrub. `error` is set when the worker has not answered for too long."""

    worker: WorkerView
    status: ScrubView = NO_SCRUB
    number: int = 0  # number of the scrub that was started
    silent_since: float | None = None
    error: str = ""

    @property
    def ended(self) -> bool:
        return self.status.number > self.number or (self.status.number == self.number and not self.status.running)


def run_scrub(manager: str, workers: list[str], *, wait: bool, repair_wait_s: float, as_json: bool) -> int:
    scrubs = [WorkerScrub(worker) for worker in _chosen(fetch_overview(manager).workers, workers)]
    for scrub in scrubs:
        scrub.status = start_scrub(scrub.worker.worker_id, scrub.worker.peer_address)
        scrub.number = scrub.status.number
        if scrub.status.checked_bytes:
            _report_joined(scrub)
    if wait:
        _follow(manager, scrubs, repair_wait_s)
    _show(scrubs, as_json=as_json)
    return _exit_code(scrubs) if wait else exit_codes.OK


def _report_joined(scrub: WorkerScrub) -> None:
    checked, total = decimal(scrub.status.checked_bytes), decimal(scrub.status.total_bytes)
    name = f"worker {scrub.worker.worker_id}: scrub {scrub.number}"
    say(f"{name} is running already and has checked {checked} of {total}", error=True)


def _chosen(known: Iterable[WorkerView], names: list[str]) -> list[WorkerView]:
    """Returns the named workers, or all that are not lost. Raises UnknownError, UnavailableError."""
    by_id = {worker.worker_id: worker for worker in known}
    for name in names:
        if name not in by_id:
            raise UnknownError(
                f"worker {name!r} is not known; the known workers are {', '.join(sorted(by_id)) or 'none'}"
            )
        if by_id[name].state == "lost":
            raise UnavailableError(f"worker {name!r} is lost: scrub it when it is back")
    chosen = [by_id[name] for name in dict.fromkeys(names)] if names else list(by_id.values())
    live = [worker for worker in chosen if worker.state != "lost"]
    if not live:
        raise UnavailableError("no worker is live, so there is nothing to scrub")
    for worker in chosen:
        if worker not in live:
            say(f"worker {worker.worker_id} is lost: it is not scrubbed", error=True)
    return live


def _follow(manager: str, scrubs: list[WorkerScrub], repair_wait_s: float) -> None:
    """Polls until every scrub has ended and its findings are repaired, or until the time for repairs has passed."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=console(error=True)) as progress:
        bars = [progress.add_task(shown(scrub.worker.worker_id), total=1.0, note="") for scrub in scrubs]
        repair_ends: float | None = None
        while True:
            for scrub, bar in zip(scrubs, bars, strict=True):
                _poll(manager, scrub)
                _draw(progress, bar, scrub)
            reachable = [scrub for scrub in scrubs if not scrub.error]
            if all(scrub.ended for scrub in reachable):
                now = time.monotonic()
                repair_ends = now + repair_wait_s if repair_ends is None else repair_ends
                if all(scrub.status.missing == 0 for scrub in reachable) or now >= repair_ends:
                    return
            time.sleep(POLL_S)


def _poll(manager: str, scrub: WorkerScrub) -> None:
    """Asks the worker. Gives it up after a long silence."""
    if scrub.error:
        return
    try:
        scrub.status = scrub_status(scrub.worker.worker_id, scrub.worker.peer_address)
        scrub.silent_since = None
    except RhinoError as error:
        scrub.silent_since = scrub.silent_since or time.monotonic()
        if time.monotonic() - scrub.silent_since > SILENCE_S:
            scrub.error = str(error)
        else:
            scrub.worker = _moved(manager, scrub.worker)


def _moved(manager: str, worker: WorkerView) -> WorkerView:
    """Looks up the address of a worker. It may change at a restart. Without the manager the old one is kept."""
    try:
        workers = fetch_overview(manager).workers
    except UnavailableError:
        return worker
    return next((now for now in workers if now.worker_id == worker.worker_id), worker)


def _draw(progress: Progress, bar: TaskID, scrub: WorkerScrub) -> None:
    status = scrub.status
    share = 1.0 if scrub.ended or not status.total_bytes else min(status.checked_bytes / status.total_bytes, 1.0)
    note = f"{decimal(status.checked_bytes)} of {decimal(status.total_bytes)}"
    if status.errors:
        note += f", {status.errors} damaged, {status.repaired} repaired"
    progress.update(bar, completed=share, note=shown(scrub.error or note))


def _show(scrubs: list[WorkerScrub], *, as_json: bool) -> None:
    if as_json:
        found = [{"worker_id": scrub.worker.worker_id, "error": scrub.error, **plain(scrub.status)} for scrub in scrubs]
        say_json({"workers": found})
        return
    rows: list[Row] = []
    for scrub in scrubs:
        state = "not reachable" if scrub.error else "ended" if scrub.ended else "running"
        files = (str(scrub.status.checked_files), str(scrub.status.errors), str(scrub.status.repaired))
        rows.append((scrub.worker.worker_id, state, decimal(scrub.status.checked_bytes), *files))
    show_columns(console(), ("worker", "state", "checked", "files", "damaged", "repaired"), rows)


def _exit_code(scrubs: list[WorkerScrub]) -> int:
    if any(scrub.status.missing for scrub in scrubs):
        return exit_codes.FAILED
    if any(scrub.error for scrub in scrubs):
        return exit_codes.UNREACHABLE
    return exit_codes.REPAIRED if any(scrub.status.errors for scrub in scrubs) else exit_codes.OK

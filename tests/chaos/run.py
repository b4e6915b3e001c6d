"""One run of chaos: the queries in a driver of their own, faults one after another, healing, then the comparison."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path

from replication_manager.protocol.placement.lagging import COOLDOWN_S
from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from rhino.testing.session import close_driver
from rhino.testing.spark_daemons import spark_env
from rhino_core.errors import RhinoError, UnavailableError
from tests.chaos import queries, verdict
from tests.chaos.faults import Faults, Heal, NotNow, live_copies
from tests.worker_runtime.tmpfs import MountError, mounted
from workloads.nexmark.output import Verdict

WORKERS = 3
PARTITIONS = 4
DISK_MB = 1536  # of each worker, where it may be mounted
POLL_S = 0.2
WARM_UP_BATCHES = 3
START_TIMEOUT_S = 180.0
# After the last fault: everything goes on and every copy is there again. A member that lagged for longer than the lag
# cap, for example because its disk was full, has been dropped and comes back after its cooldown.
HEAL_TIMEOUT_S = 180.0 + COOLDOWN_S
TAIL = 30  # lines of each log that a failure shows
STALL_S = 240.0  # no batch of a query for so long under faults


class ChaosError(RhinoError):
    """The run ended with a wrong output, a query that stands still, or copies that did not come back."""


@dataclass(slots=True)
class Report:
    """The outcome of a run. `failures`: errors with which queries ended under faults; they were started again."""

    seed: int
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    healed_s: float = 0.0

    @property
    def equal(self) -> bool:
        return bool(self.verdicts) and all(v.equal for v in self.verdicts.values())

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


class Chaos:
    """`folder` receives everything. `say` gets a line for each fault. `only`: the faults to draw; empty: all."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None], only: Collection[str] = ()) -> None:
        self.folder = folder
        self.cluster = LocalCluster(folder / "cluster", workers=WORKERS)
        self.report = Report(seed)
        self._say = say
        self._only = only
        self._reaper = Reaper()
        self._driver: Process | None = None
        self._own_disks = False
        self._heals: list[tuple[float, str, Heal]] = []
        self._progress: dict[str, tuple[int, float]] = {}

    def run(self, minutes: float) -> Report:
        """Raises ChaosError when a query stands still, copies do not come back or the driver ends by itself."""
        try:
            with contextlib.ExitStack() as stack:
                self._own_disks = self._mount_disks(stack)
                stack.enter_context(self.cluster)
                self._start_driver()
                self._wait("the first batches", lambda: self._advanced(WARM_UP_BATCHES), START_TIMEOUT_S)
                self._faults(minutes * 60)
                self._heal_all()
                self._stop_driver()
                self._compare()
        finally:
            if self._driver is not None:
                self._driver.kill()
            self._reaper.close()
        return self.report

    def _mount_disks(self, stack: contextlib.ExitStack) -> bool:
        """A file system for each worker, so that one can be full; False, and said, when that is not permitted."""
        try:
            for index in range(WORKERS):
                stack.enter_context(mounted(self.cluster.worker_folder(index), DISK_MB))
        except MountError as error:
            self._say(f"no disk will be filled: {error}")
            return False
        return True

    # ---- the driver

    def _start_driver(self) -> None:
        settings = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.rhino.replicationFactor": str(WORKERS - 1)}
        conf = self.folder / "conf.json"
        conf.write_text(json.dumps(self.cluster.conf("chaos", settings)))
        command = [sys.executable, "-m", "tests.chaos.driver", str(conf), str(self.folder)]
        self._driver = Process(
            "chaos-driver", command, log_dir=self.cluster.log_dir, env=spark_env("127.0.0.1"), reaper=self._reaper
        )

    def _current_driver(self) -> Process:
        assert self._driver is not None
        return self._driver

    def _collect_failures(self) -> None:
        """Before the driver's process is replaced: what it has said."""
        lines = self._current_driver().out_path.read_text().splitlines()
        self.report.failures = [f"{e['query']}: {e['error']}" for e in map(json.loads, lines)]

    def _stop_driver(self) -> None:
        self._current_driver().terminate(timeout_s=60)
        self._collect_failures()

    # ---- faults

    def _faults(self, seconds: float) -> None:
        faults = Faults(self.cluster, self._current_driver, self.report.seed, own_disks=self._own_disks)
        if self._only:
            try:
                faults.limit(self._only)
            except ValueError as error:
                raise ChaosError(str(error)) from error
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < seconds:
            name = faults.draw()
            try:
                begun = faults.begin(name)
            except NotNow:
                self._pause(POLL_S)
                continue
            self.report.faults[name] = self.report.faults.get(name, 0) + 1
            self._say(f"{elapsed:7.1f} s  {begun.what}" + (f" for {begun.seconds:.1f} s" if begun.heal else ""))
            if begun.heal is not None:
                self._heals.append((time.monotonic() + begun.seconds, begun.what, begun.heal))
            self._pause(faults.random.uniform(1, 12))
        self.report.seconds = round(time.monotonic() - started, 1)

    def _pause(self, seconds: float) -> None:
        """Heals what is due and watches meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._heal_and_check()
            time.sleep(POLL_S)

    def _heal_and_check(self) -> None:
        now = time.monotonic()
        for heal in [h for h in self._heals if h[0] <= now]:
            self._heals.remove(heal)
            heal[2]()
        self.cluster.check()
        if not self._current_driver().running:
            self._restart_driver()
        for name in queries.NAMES:
            batches = queries.logged(self.folder, name)
            if batches != self._progress.get(name, (-1, 0.0))[0]:
                self._progress[name] = (batches, now)
            elif now - self._progress[name][1] > STALL_S:
                raise ChaosError(f"{name} stands still at {batches} batches for {STALL_S:g} s")

    def _restart_driver(self) -> None:
        driver = self._current_driver()
        if driver.returncode != -9:
            raise ChaosError(f"the driver ended by itself{driver.tail()}")
        driver.kill()
        self._start_driver()

    # ---- the end

    def _heal_all(self) -> None:
        started = time.monotonic()
        for _, _, heal in sorted(self._heals, key=lambda h: h[0]):
            heal()
        self._heals.clear()
        self._heal_and_check()
        before = {name: queries.logged(self.folder, name) for name in queries.NAMES}
        done = {name: count + WARM_UP_BATCHES for name, count in before.items()}

        def healed() -> bool:
            return self._advanced(0, done) and self._whole()

        self._wait("going on with every copy in its place", healed, HEAL_TIMEOUT_S, lambda: self._missing(done))
        self.report.healed_s = round(time.monotonic() - started, 1)

    def _advanced(self, batches: int, goals: dict[str, int] | None = None) -> bool:
        return all(queries.logged(self.folder, n) >= (goals[n] if goals else batches) for n in queries.NAMES)

    def _whole(self) -> bool:
        try:
            overview = fetch_overview(self.cluster.manager)
        except UnavailableError:
            return False
        return bool(overview.groups) and all(len(live_copies(g)) == WORKERS for g in overview.groups)

    def _missing(self, goals: dict[str, int]) -> str:
        """Returns what has not healed yet, and the last lines of every daemon's log."""
        batches = [f"{n}: {queries.logged(self.folder, n)} batches, expected {goals[n]}" for n in queries.NAMES]
        try:
            overview = fetch_overview(self.cluster.manager)
        except UnavailableError as error:
            return "\n".join([*batches, str(error), *self._log_tails()])
        workers = [f"{w.worker_id}: {w.state}, disk {w.disk} {w.disk_message}" for w in overview.workers]
        groups = [
            f"{g.group} epoch {g.epoch}: "
            + ", ".join(
                f"{m.worker_id} {m.state} {'whole' if m.whole else 'behind'} {m.newest_version}" for m in g.members
            )
            for g in overview.groups
            if len(live_copies(g)) != WORKERS
        ]
        return "\n".join([*batches, *workers, *groups, *self._log_tails()])

    def _log_tails(self) -> list[str]:
        logs = sorted(Path(self.cluster.log_dir).glob("*"))
        return [f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:]) for log in logs]

    def _wait(
        self, what: str, condition: Callable[[], bool], timeout_s: float, missing: Callable[[], str] | None = None
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                detail = f"\n{missing()}" if missing else ""
                raise ChaosError(f"{what}: not within {timeout_s:g} s{detail}")
            self._pause(POLL_S)

    def _compare(self) -> None:
        self.report.batches = {name: queries.logged(self.folder, name) for name in queries.NAMES}
        spark = self.cluster.session("oracle")
        try:
            events = self.folder / "events"
            queries.write_events(spark, self.report.batches["nbq8"], events)
        finally:
            close_driver()
        self.report.verdicts = {
            "nbq8": verdict.nbq8(self.folder, self.report.batches["nbq8"], events),
            "aggregation": verdict.aggregation(self.folder, self.report.batches["aggregation"]),
        }

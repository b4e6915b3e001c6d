"""The demo: NBQ8 on a local cluster, with a live handover, a killed worker, and its output checked with DuckDB."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from deploy.demo import oracle, query
from deploy.demo.picture import draw
from deploy.demo.plan import handover_choice, kill_facts
from deploy.demo.report import Kill, Observations, make_report, problems, recovery_prepares, show
from deploy.demo.watch import DemoError, QueryWatch, driver_hosts
from deploy.local import LocalCluster
from deploy.local.rpc.describe import PrepareFacts, SidecarFacts, describe
from deploy.nexmark.output import Verdict
from rhino.errors import RhinoError
from rhino.rpc.overview import JobView, fetch_overview
from spark_connector import Handover, HandoverClient, Phase

QUERY_NAME = "nbq8"
VIRTUAL_NODES = 12
HANDOVER_AT, KILL_AT = 0.3, 0.65  # shares of the batches
HANDOVER_DEADLINE_S = 60.0
RECORDS_MAX = 100_000
SESSION_CONF = {
    "spark.sql.shuffle.partitions": str(VIRTUAL_NODES),
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Batches take a second or two: more and earlier snapshots than by default, so that a recovery replays little.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "5",
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
    # Counting keys reads the whole value before every write: over a third of the processor time of this query.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}


@dataclass(frozen=True, slots=True)
class Options:
    load: query.Workload
    workers: int
    out: Path
    keep: bool

    @property
    def work(self) -> Path:
        """Emptied at the start."""
        return self.out / "rhino-demo-work"

    @property
    def report(self) -> Path:
        return self.out / "report.json"

    @property
    def picture(self) -> Path:
        return self.out / "latency.png"


def parse(argv: Sequence[str]) -> Options:
    """Exits with code 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="rhino demo", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="persons and auctions together")
    parser.add_argument("--batches", type=int, default=40, help="micro-batches that they come in")
    parser.add_argument("--workers", type=int, default=3, help="at least 3: one of them is killed")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder of report.json and latency.png")
    parser.add_argument("--keep", action="store_true", help="keep data and logs in <out>/rhino-demo-work")
    found = parser.parse_args(argv)
    for name, least in (("events", 4), ("batches", 20), ("workers", 3)):
        if getattr(found, name) < least:
            parser.error(f"--{name} must be {least} or more")
    load = query.Workload(persons=-(-found.events // 4), batches=found.batches)
    return Options(load, found.workers, found.out, found.keep)


class Demo:
    """The steps, in order, on a running cluster; progress goes to `progress`."""

    def __init__(self, options: Options, cluster: LocalCluster, work: Path, progress: Progress) -> None:
        self.load = options.load
        self.cluster = cluster
        self.work = work
        self.progress = progress
        self.task = progress.add_task("starting the query", total=options.load.batches)
        self.before_kill: tuple[SidecarFacts, ...] = ()

    def say(self, text: str) -> None:
        self.progress.update(self.task, description=text)
        self.progress.console.print(f"  {text}")

    def run(self, spark: SparkSession) -> Observations:
        persons, auctions = query.streams(spark, self.load)
        checkpoint = self.work / "checkpoint"
        started = (
            query.nbq8(persons, auctions)
            .writeStream.queryName(QUERY_NAME)
            .outputMode("append")
            .format("parquet")
            .option("path", str(self.work / "output"))
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        watch = QueryWatch(started, checkpoint, on_poll=self._progressed, check=self.cluster.check)
        last = self.load.batches - 1
        self.say(f"running {QUERY_NAME}: {self.load.events:,} events in {self.load.batches} batches")
        watch.wait_for_batch(round(HANDOVER_AT * last))
        handover = self._hand_over(watch)
        watch.wait_for_batch(max(round(KILL_AT * last), watch.committed() + 3))
        kill, prepares = self._kill(spark, watch, handover.plan.moves[0].target)
        watch.wait_for_batch(last)
        batches = watch.batches(last)
        if dropped := watch.dropped_rows():
            raise DemoError(f"{dropped} rows were dropped as too late")
        survivors = self._describe(except_worker=kill.worker_id)
        started.stop()
        sidecars = (*survivors, *(s for s in self.before_kill if s.worker_id == kill.worker_id))
        verdict = self._compare(spark)
        return Observations(self.load.events, verdict, batches, handover, kill, prepares, sidecars)

    def _progressed(self, committed: int) -> None:
        self.progress.update(self.task, completed=min(committed + 1, self.load.batches))

    def _job(self) -> JobView | None:
        jobs = fetch_overview(self.cluster.manager).jobs
        return next((j for j in jobs if j.name == QUERY_NAME and j.connected), None)

    def _hand_over(self, watch: QueryWatch) -> Handover:
        """Half of the virtual nodes of one worker to another, while the query runs."""
        settled: list[JobView] = []

        def all_placed() -> bool:
            job = self._job()
            nodes = job.virtual_nodes if job else ()
            if job and len(nodes) == VIRTUAL_NODES and all(n.desired_worker and n.holders for n in nodes):
                settled.append(job)
            return bool(settled)

        watch.wait_for(all_placed)
        choice = handover_choice(settled[0])
        self.say(f"handing {', '.join(choice.virtual_nodes)} over from {choice.origin} to {choice.target}")
        with HandoverClient(self.cluster.manager) as client, ThreadPoolExecutor(1) as pool:
            handover = client.start(settled[0].job, choice.virtual_nodes, choice.target, deadline_s=HANDOVER_DEADLINE_S)
            ended = pool.submit(client.wait, handover.handover_id, timeout_s=HANDOVER_DEADLINE_S + 10)
            watch.wait_for(ended.done)
            handover = ended.result()
        if handover.phase is not Phase.CONFIRMED:
            raise DemoError(f"the handover ended {handover.phase.value}: {handover.reason}")
        self.say(f"handover confirmed by batch {handover.confirmed_batch_id} after {handover.duration_s:.1f} s")
        return handover

    def _kill(self, spark: SparkSession, watch: QueryWatch, worker_id: str) -> tuple[Kill, list[PrepareFacts]]:
        """Kills `worker_id` right after a batch is logged, so that the next one has to recover."""
        index = next(i for i, w in enumerate(self.cluster.workers) if w.worker_id == worker_id)
        host = self.cluster.workers[index].host
        self.before_kill = self._describe()
        watch.wait_for_batch(watch.committed() + 1)
        moved, whole = kill_facts(fetch_overview(self.cluster.manager), QUERY_NAME, worker_id)
        at_ms = self.cluster.kill_worker(index)
        newest = watch.committed()
        self.say(f"kill -9 of {worker_id} (executor, Spark worker, sidecar) after batch {newest}")
        detected_ms = next_batch_ms = 0

        def recovered() -> bool:
            nonlocal detected_ms, next_batch_ms
            if not detected_ms and host not in driver_hosts(spark):
                detected_ms = time.time_ns() // 1_000_000
            if not next_batch_ms and watch.committed() > newest:
                next_batch_ms = time.time_ns() // 1_000_000
            return bool(detected_ms and next_batch_ms)

        watch.wait_for(recovered)
        self.say(f"batch {newest + 1} done {(next_batch_ms - at_ms) / 1000:.1f} s after the kill")
        kill = Kill(worker_id, at_ms, detected_ms, next_batch_ms, moved, whole)
        return kill, recovery_prepares(kill, self._describe(except_worker=worker_id))

    def _describe(self, except_worker: str = "") -> tuple[SidecarFacts, ...]:
        return tuple(
            describe(w.peer_address, prepares_max=RECORDS_MAX, commits_max=RECORDS_MAX)
            for w in self.cluster.workers
            if w.worker_id != except_worker
        )

    def _compare(self, spark: SparkSession) -> Verdict:
        self.say("comparing the output with DuckDB over the same events")
        persons, auctions = query.batches(spark, self.load)
        persons.write.parquet(str(self.work / "persons"))
        auctions.write.parquet(str(self.work / "auctions"))
        return oracle.compare(self.work / "persons", self.work / "auctions", self.work / "output")


def carry_out(options: Options, console: Console) -> list[str]:
    """Runs everything and writes the results into `options.out`; returns what went wrong."""
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    for result in (options.report, options.picture):
        result.unlink(missing_ok=True)  # of an earlier run: this one may fail
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        starting = progress.add_task(f"starting a cluster of {options.workers} workers", total=None)
        with LocalCluster(options.work, workers=options.workers) as cluster:
            console.print(f"  manager at {cluster.manager}: rhino status --manager {cluster.manager}")
            spark = cluster.session("rhino demo", SESSION_CONF)
            progress.remove_task(starting)
            seen = Demo(options, cluster, options.work.resolve(), progress).run(spark)
    report = make_report(seen)
    report.write(options.report)
    draw(options.picture, seen.batches, seen.handover, seen.kill)
    show(report, Console())
    return problems(seen)


def main(argv: Sequence[str]) -> int:
    """Exit code 0: everything held; 1: it did not. Ctrl-C and SIGTERM stop and clean up as well."""
    options = parse(argv)
    console = Console(stderr=True)
    # py4j logs the traceback of a call that Ctrl-C interrupts; whoever pressed it knows.
    logging.getLogger().addFilter(lambda record: not record.getMessage().startswith("KeyboardInterrupt"))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = carry_out(options, console)
    except RhinoError as error:
        found = [str(error)]
    except KeyboardInterrupt:
        shutil.rmtree(options.work, ignore_errors=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    for problem in found:
        console.print(f"[bold red]FAILED[/] {problem}", highlight=False, soft_wrap=True)
    if found:
        console.print(f"data and logs are in {options.work}")
        return 1
    if not options.keep:
        shutil.rmtree(options.work)
    console.print(f"report: {options.report}  picture: {options.picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

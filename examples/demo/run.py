"""The demo: NBQ8 on a local cluster, with a live handover and a killed worker. DuckDB checks the output."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from examples.demo import oracle, query
from examples.demo.picture import draw
from examples.demo.report import Kill, Observations, make_report, problems, recovery_prepares, show
from rhino import Handover, HandoverClient, Phase
from rhino.client.overview import JobView, fetch_overview
from rhino.page.serving import Page, PageSettings
from rhino.testing import LocalCluster
from rhino.testing.choices import handover_choice, kill_facts
from rhino.testing.describe import PrepareFacts, SidecarFacts, describe
from rhino.testing.query_watch import QueryWatch, RunError, driver_hosts
from rhino_core.errors import RhinoError
from workloads.nexmark.output import Verdict

VIRTUAL_NODES = 12
HANDOVER_AT, KILL_AT = 0.3, 0.65  # fractions of the batches
HANDOVER_DEADLINE_S = 60.0
RECORDS_MAX = 100_000
SESSION_CONF = {
    "spark.sql.shuffle.partitions": str(VIRTUAL_NODES),
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Batches take a second or two. More frequent snapshots than by default keep a replay after a loss short.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "5",
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
    # Counting keys reads the whole value before every write, which costs much processor time in this query.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}


@dataclass(frozen=True, slots=True)
class Options:
    load: query.Workload
    workers: int
    out: Path
    keep: bool
    stay: bool

    @property
    def work(self) -> Path:
        """Folder for data and logs. It is emptied at the start."""
        return self.out / "rhino-demo-work"

    @property
    def report(self) -> Path:
        return self.out / "report.json"

    @property
    def picture(self) -> Path:
        return self.out / "latency.png"


def parse(argv: Sequence[str]) -> Options:
    """Parses the arguments. Exits with code 2 if they are wrong."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="persons and auctions together")
    parser.add_argument("--batches", type=int, default=40, help="micro-batches that they come in")
    parser.add_argument("--workers", type=int, default=3, help="at least 3: one of them is killed")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder of report.json and latency.png")
    parser.add_argument("--keep", action="store_true", help="keep data and logs in <out>/rhino-demo-work")
    parser.add_argument("--stay", action="store_true", help="then let a query count on until Ctrl-C, for the page")
    found = parser.parse_args(argv)
    for name, least in (("events", 4), ("batches", 20), ("workers", 3)):
        if getattr(found, name) < least:
            parser.error(f"--{name} must be {least} or more")
    load = query.Workload(persons=-(-found.events // 4), batches=found.batches)
    return Options(load, found.workers, found.out, found.keep, found.stay)


class Demo:
    """The steps of the demo on a running cluster. They report to `progress`."""

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
        started = query.start(spark, self.load, self.work)
        watch = QueryWatch(started, self.work / "checkpoint", on_poll=self._progressed, check=self.cluster.check)
        last = self.load.batches - 1
        self.say(f"running {query.NAME}: {self.load.events:,} events in {self.load.batches} batches")
        watch.wait_for_batch(round(HANDOVER_AT * last))
        handover = self._hand_over(watch)
        watch.wait_for_batch(max(round(KILL_AT * last), watch.committed() + 3))
        kill, prepares = self._kill(spark, watch, handover.plan.moves[0].target)
        watch.wait_for_batch(last)
        batches = watch.batches(last)
        if dropped := watch.dropped_rows():
            raise RunError(f"{dropped} rows were dropped as too late")
        survivors = self._describe(except_worker=kill.worker_id)
        started.stop()
        sidecars = (*survivors, *(s for s in self.before_kill if s.worker_id == kill.worker_id))
        verdict = self._compare(spark)
        return Observations(self.load.events, verdict, batches, handover, kill, prepares, sidecars)

    def _progressed(self, committed: int) -> None:
        self.progress.update(self.task, completed=min(committed + 1, self.load.batches))

    def _job(self) -> JobView | None:
        jobs = fetch_overview(self.cluster.manager).jobs
        return next((j for j in jobs if j.name == query.NAME and j.connected), None)

    def _hand_over(self, watch: QueryWatch) -> Handover:
        """Hands half of one worker's virtual nodes over to another worker, while the query runs."""
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
            raise RunError(f"the handover ended {handover.phase.value}: {handover.reason}")
        self.say(f"handover confirmed by batch {handover.confirmed_batch_id} after {handover.duration_s:.1f} s")
        return handover

    def _kill(self, spark: SparkSession, watch: QueryWatch, worker_id: str) -> tuple[Kill, list[PrepareFacts]]:
        """Kills `worker_id` just after a batch is logged, so that the next batch must recover."""
        index = next(i for i, w in enumerate(self.cluster.workers) if w.worker_id == worker_id)
        host = self.cluster.workers[index].host
        self.before_kill = self._describe()
        watch.wait_for_batch(watch.committed() + 1)
        moved, whole = kill_facts(fetch_overview(self.cluster.manager), query.NAME, worker_id)
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
            describe(w.worker_id, w.peer_address, prepares_max=RECORDS_MAX, commits_max=RECORDS_MAX)
            for w in self.cluster.workers
            if w.worker_id != except_worker
        )

    def _compare(self, spark: SparkSession) -> Verdict:
        self.say("comparing the output with DuckDB over the same events")
        return oracle.check(spark, self.load, self.work)


def carry_out(options: Options, console: Console) -> list[str]:
    """Runs the demo and writes the results into `options.out`. Returns the problems."""
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    for result in (options.report, options.picture):
        result.unlink(missing_ok=True)  # from an earlier run; this run may fail
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
            with page(cluster.manager) as address:
                console.print(f"  page at {address}", highlight=False, soft_wrap=True)
                spark = cluster.session("Rhino demo", SESSION_CONF)
                progress.remove_task(starting)
                seen = Demo(options, cluster, options.work.resolve(), progress).run(spark)
                found = written(seen, options)
                if options.stay and not found:
                    progress.stop()
                    stay(spark, options, console)
    return found


def written(seen: Observations, options: Options) -> list[str]:
    """Writes and shows the results. Returns the problems."""
    report = make_report(seen)
    report.write(options.report)
    draw(options.picture, seen.batches, seen.handover, seen.kill)
    show(report, Console())
    return problems(seen)


@contextmanager
def page(manager: str) -> Iterator[str]:
    """Serves the page of the cluster. Yields its address."""
    served = Page(PageSettings(manager, "127.0.0.1", port=0, interval_s=2.0))
    thread = threading.Thread(target=served.run, name="page")
    thread.start()
    try:
        yield served.address
    finally:
        served.server.should_exit = True
        thread.join()


def stay(spark: SparkSession, options: Options, console: Console) -> None:
    """Runs a small query until Ctrl-C."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
    counts = rows.selectExpr("value % 100 as k").groupBy("k").count()
    writer = counts.writeStream.queryName("counts").outputMode("update").format("noop")
    located = writer.option("checkpointLocation", str(options.work / "counts")).trigger(processingTime="1 second")
    console.print("the query `counts` runs until Ctrl-C: look at it on the page, and move it")
    with suppress(KeyboardInterrupt):
        located.start().awaitTermination()


def main(argv: Sequence[str]) -> int:
    """Returns exit code 0 if there were no problems, else 1. Ctrl-C and SIGTERM also clean up."""
    options = parse(argv)
    console = Console(stderr=True)
    # py4j logs the traceback of a call that Ctrl-C interrupts, which is of no use.
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

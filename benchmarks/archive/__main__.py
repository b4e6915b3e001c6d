"""`python -m benchmarks.archive requests`, and `restore`: the archive on S3 (moto's, on this machine).

`requests`: real sidecars and a real manager, without Spark. Each partition commits a changelog a second, and a snapshot
after ten. The store counts the requests that arrive, and each begins and ends with an archived batch. `restore` (as
root): the query of benchmarks.recovery on one worker. Everything but its checkpoint and the archive is deleted, and a
new cluster goes on with it behind a link of 1 Gbit/s. moto shares the processors with everything else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.archive.requests import measure
from benchmarks.archive.restore import restore
from benchmarks.cells import GB
from benchmarks.command import folder, main, show
from benchmarks.stateful import Load
from workloads.machine import machine


def _run() -> None:
    arguments = _arguments()
    report: dict[str, object] = {"command": " ".join(["python -m benchmarks.archive", *sys.argv[1:]])}
    report["machine"] = machine()
    with tempfile.TemporaryDirectory(prefix="rhino-archive-", dir=arguments.dir) as temporary:
        work = Path(temporary).resolve()
        if arguments.part == "requests":
            sizes = (arguments.workers, arguments.partitions, arguments.changelog_bytes, arguments.seconds)
            row = measure(work, *sizes)
        else:
            with Console(stderr=True).status("starting") as status:
                row = restore(Load(round(arguments.size * GB)), work, status.update)
    table = Table("", arguments.part)
    for name, value in row.items():
        table.add_row(name.replace("_", " "), f"{value:,.3g}" if value < 100 else f"{value:,.0f}")
    show(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(report | {arguments.part: [row]}, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.archive", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("requests", "restore"))
    parser.add_argument("--workers", type=int, default=10, help="of requests")
    parser.add_argument("--partitions", type=int, default=200, help="of requests")
    parser.add_argument("--changelog-bytes", type=int, default=4096, help="of requests")
    parser.add_argument("--seconds", type=float, default=300.0, help="of requests, after the first archived batch")
    parser.add_argument("--size", type=float, default=4.0, help="of restore: GB of state")
    parser.add_argument("--dir", type=folder, help="where to work")
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(_run))

"""`python -m tests.spark_suites [--integration MODE] [module ...]`; exit code 1 if something passes on stock only."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.spark_suites.suites import INTEGRATIONS, MODULE_TIMEOUT_S, MODULES, ModuleRun, daemons, run_module


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_suites", description=__doc__)
    parser.add_argument(
        "--integration", choices=INTEGRATIONS, action="append", default=[], help="repeatable (default: all three)"
    )
    parser.add_argument("--timeout", type=float, default=MODULE_TIMEOUT_S, metavar="S", help="of a module in one mode")
    parser.add_argument("--folder", type=Path, default=None, help="empty folder for logs, kept")
    parser.add_argument("--json", type=Path, default=None, help="where to write all outcomes")
    parser.add_argument("modules", nargs="*", metavar="module", help="below pyspark.sql.tests; default: all known")
    arguments = parser.parse_args()
    runs: list[ModuleRun] = []
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rhino-suites-")))
        of = stack.enter_context(daemons(folder.resolve() / "daemons"))
        for module in arguments.modules or MODULES:
            for integration in arguments.integration or INTEGRATIONS:
                runs.append(run_module(module, integration, of, folder.resolve(), arguments.timeout))
                print(runs[-1], flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps([asdict(run) for run in runs], indent=1))
    return 1 if differences(runs) else 0


def differences(runs: list[ModuleRun]) -> bool:
    """Prints what is broken, and what passes on stock only."""
    stock = {run.module: run for run in runs if run.integration == "stock"}
    found = False
    for run in runs:
        if run.broken:
            found = True
            print(f"\n{run.integration} {run.module}: {run.broken}", file=sys.stderr)
        elif run.integration != "stock" and run.module in stock:
            for test, text in run.worse_than(stock[run.module]).items():
                found = True
                print(f"\n{run.integration} {test} passes on stock, but here:\n{text}", file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(main())

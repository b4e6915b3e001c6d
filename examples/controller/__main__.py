"""`python -m examples.controller HOST:PORT`: balances all queries of a manager.

The manager should run with `--adaptation off`, so that only one of the two moves anything.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from examples.controller.core import Controller
from rhino import BatchLoad, HandoverClient, Rebalance, Weight
from rhino_core.errors import RhinoError, UnavailableError

AGAIN_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebalances queries whose workers are unevenly busy.")
    parser.add_argument("manager", help="host:port of the manager")
    parser.add_argument("--job", default="", help="id or name of the only query to balance (default: all)")
    parser.add_argument("--band", type=float, default=0.2, help="imbalance above 1 that is all right (default: 0.2)")
    arguments = parser.parse_args()
    controller = Controller(band=arguments.band)
    with HandoverClient(arguments.manager) as client:
        for load in loads(client, arguments.job):
            if controller.batch(load):
                rebalance(client, load)


def loads(client: HandoverClient, job: str) -> Iterator[BatchLoad]:
    """The load of all batches. It connects again when the manager was restarted."""
    while True:
        try:
            yield from client.watch_load(job)
        except UnavailableError as error:
            print(f"trying again: {error}", flush=True)
            time.sleep(AGAIN_S)


def rebalance(client: HandoverClient, load: BatchLoad) -> None:
    who = load.name or load.job
    try:
        started = client.start(load.job, intent=Rebalance(Weight.TIME))
    except RhinoError as error:  # for example, it is being handed over already
        print(f"{who}, batch {load.batch_id}: imbalance {load.imbalance:.2f}, not moved: {error}", flush=True)
        return
    moves = len(started.plan.moves)
    print(f"{who}, batch {load.batch_id}: imbalance {load.imbalance:.2f}, moving {moves} virtual nodes", flush=True)


if __name__ == "__main__":
    main()

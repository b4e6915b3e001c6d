"""`rhino moved`: records the new location of a stopped job's query checkpoint."""

from __future__ import annotations

from rhino.cli import exit_codes
from rhino.cli.output import say, say_json
from rhino.client.moved import move_checkpoint


def run_moved(manager: str, job: str, location: str, *, as_json: bool) -> int:
    """Executes the command and returns its exit code. The caller handles RhinoErrors."""
    done = move_checkpoint(manager, job, location)
    if as_json:
        say_json(done)
    else:
        say(f"query {done.job}: its checkpoint is at {done.location} now; runs from other locations are refused")
    return exit_codes.OK

"""`rhino owner`: sets the driver that may run a query."""

from __future__ import annotations

from rhino.cli import exit_codes
from rhino.cli.output import say, say_json
from rhino.client.owner import set_owner
from rhino_core.errors import InvalidRequestError


def run_owner(manager: str, job: str, to: str, *, next_driver: bool, as_json: bool) -> int:
    """Executes the command and returns its exit code. The caller handles RhinoErrors."""
    if bool(to) is next_driver:
        raise InvalidRequestError("give --to NAME, or --next-driver, and not both")
    done = set_owner(manager, job, to)
    if as_json:
        say_json(done)
    else:
        say(f"query {done.job}: {f'only the driver {done.owner} runs it' if done.owner else 'the next driver gets it'}")
    return exit_codes.OK

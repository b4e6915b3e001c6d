"""Commands of former versions. They end with an error that shows the present form."""

from __future__ import annotations

from collections.abc import Sequence

from rhino_core.errors import InvalidRequestError

_OPTIONS = {
    "--quiet-s": "--idle-s",
    "--through": "--integration",
    "--start-in": "--start-in-s",
    "--virtual-node": "the virtual node as an argument: `rhino explain 0/5 --job JOB`",
}
_INTENTS = "move, drain, rebalance, scale-out or scale-in"


def refuse_former(arguments: Sequence[str]) -> None:
    """Raises InvalidRequestError for a command line that only a former version understood."""
    match arguments:
        case ["rebalance", *_]:
            raise InvalidRequestError("`rhino rebalance` does not exist: use `rhino handover rebalance --job JOB`")
        case ["handover", "drain", *_]:
            raise InvalidRequestError("`rhino handover drain` does not exist: use `rhino drain WORKER`")
        case ["handover", "--cancel", *_]:
            raise InvalidRequestError("`rhino handover --cancel` does not exist: use `rhino handover cancel HANDOVER`")
        case ["plan" | "handover" as name, option, *_] if option.startswith("--") and option != "--help":
            intents = _INTENTS if name == "plan" else _INTENTS.replace("drain, ", "")
            raise InvalidRequestError(
                f"`rhino {name}` needs an intent before its options: {intents}. For example "
                f"`rhino {name} move 0/2 0/4-6 --job JOB --to WORKER`; see `rhino {name} --help`"
            )
        case _:
            given = {argument.partition("=")[0] for argument in arguments}
            for option in sorted(given & _OPTIONS.keys()):
                raise InvalidRequestError(f"{option} does not exist: use {_OPTIONS[option]}")

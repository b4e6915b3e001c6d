"""One call of the `rhino` command: its request, and the report of its failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rhino.cli import exit_codes
from rhino.cli.output import say, say_json_line
from rhino.client.listener import describe_listeners
from rhino_core.errors import RemoteProtocolError, RhinoError, UnavailableError


@dataclass(slots=True)
class Invocation:
    """`manager`: the address on the command line, once it is read."""

    arguments: Sequence[str]
    manager: str = ""

    @property
    def as_json(self) -> bool:
        return "--json" in self.arguments

    def fail(self, error: RhinoError) -> int:
        """Reports the error on stderr, as `error: ...` or as a JSON object. Returns the exit code."""
        code, text = exit_codes.of_error(error), str(error)
        if self.manager and isinstance(error, UnavailableError | RemoteProtocolError) and self.manager in text:
            found = describe_listeners(self.manager)
            if found:
                code, text = exit_codes.UNREACHABLE, f"no Rhino manager at {self.manager}: {found}"
        self.report(type(error).__name__, text, code)
        return code

    def report(self, kind: str, text: str, code: int) -> None:
        """Prints an error on stderr. `kind` is a name of rhino_core/errors.py, or of the caller."""
        if self.as_json:
            say_json_line({"error": {"kind": kind, "message": text, "exit_code": code}}, error=True)
        else:
            say(f"error: {text}", error=True)

"""Output to a reader that has ended."""

from __future__ import annotations

import pytest

from rhino.cli import exit_codes
from tests import forked

PROGRAM = """if True:
    import sys
    from rhino.cli import main, output

    @main.app.command("flood")
    def flood() -> None:
        output.FUNCTION("x" * 100_000)

    sys.argv = ["rhino", "flood"]
    main.main()
"""


@pytest.mark.parametrize("function", ["say", "say_json", "say_json_line"])
def test_a_reader_that_ends_within_a_long_output_has_its_exit_code(function: str) -> None:
    done = forked.run(PROGRAM.replace("FUNCTION", function), unread=True)
    assert (done.returncode, done.stderr) == (exit_codes.PIPE_CLOSED, "")

"""Output to a reader that has ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rhino.cli import exit_codes

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
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", PROGRAM.replace("FUNCTION", function)]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        assert process.stderr is not None
        said = process.stderr.read()
    assert (process.returncode, said) == (exit_codes.PIPE_CLOSED, b"")

"""The question before something is deleted: on a real terminal, in a pipe, and answered in advance."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from rhino.cli.output import confirm
from rhino_core.errors import InvalidRequestError

ASK = """
from rhino.cli.output import confirm
from rhino_core.errors import PreconditionError
try:
    confirm("This deletes all state of job j", yes=False)
    print("done")
except PreconditionError as error:
    print(error)
"""


def test_without_a_terminal_yes_is_required() -> None:
    with open(os.devnull) as nothing, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", nothing)
        with pytest.raises(InvalidRequestError, match=r"This deletes it.*--yes is missing"):
            confirm("This deletes it", yes=False)
        confirm("This deletes it", yes=True)
        assert not nothing.isatty()


@pytest.mark.parametrize(("answer", "said"), [("y\n", "done"), ("n\n", "nothing was changed"), ("\n", "nothing")])
def test_on_a_terminal_only_yes_goes_on(answer: str, said: str) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", ASK], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(theirs)
        os.write(ours, answer.encode())
        out, err = process.communicate(timeout=60)
        os.close(ours)
    assert said in out
    assert "This deletes all state of job j. Continue?" in err

"""A terminal on the user's machine: a shell that stays open, with processes in its background."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import TracebackType
from typing import Self

from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from tests.first_hour.machine import Machine

START_TIMEOUT_S = 30


class Terminal:
    """Context manager. All processes that were started in it end with it."""

    def __init__(self, machine: Machine, name: str = "terminal") -> None:
        self._machine = machine
        self._name = name
        self._number = 0

    def __enter__(self) -> Self:
        self._reaper = Reaper()
        commands = self._machine.home / f"{self._name}.in"
        os.mkfifo(commands)
        shell = f"cd {self._machine.home} && exec bash < {commands} 2>&1"
        self._shell = Process(
            self._name,
            ["bash", "-c", shell],
            log_dir=self._machine.home,
            env=self._machine.environment,
            reaper=self._reaper,
        )
        self._commands = commands.open("w")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._commands.close()
        self._shell.kill()
        self._reaper.close()

    def run(self, text: str, *, timeout_s: float = 120, fails: bool = False) -> str:
        """Runs commands and returns what they printed, both streams. Unless it may, the last one must not fail."""
        self._number += 1
        end = f"__end_{self._number}"
        before = len(self._shell.text())
        self._commands.write(f"{text}\necho {end} $?\n")
        self._commands.flush()
        code = self._shell.wait_for_match(rf"{end} (\d+)\n", timeout_s=timeout_s)[1]
        printed = re.split(rf"{end} \d+\n", self._shell.text()[before:])[0]
        assert fails or code == "0", f"{text}\n{printed}\n{self._logs()}"
        return printed

    def _logs(self) -> str:
        paths = sorted(Path(self._machine.home).glob("*.log"))
        return "".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}\n" for path in paths)

"""Messages to systemd (sd_notify): the unit has started, and its health in words for `systemctl status`."""

from __future__ import annotations

import contextlib
import os
import socket

from rhino_core.health import Report

_VARIABLE = "NOTIFY_SOCKET"


class Notifier:
    """Sends nothing unless systemd started this process with `Type=notify`."""

    def __init__(self) -> None:
        path = os.environ.pop(_VARIABLE, "")  # not for processes that this one starts
        self._path = f"\0{path[1:]}" if path.startswith("@") else path
        self._sent = ""

    def report(self, ready: Report) -> None:
        """Reports the health to systemd. The first call also reports the start of the unit."""
        failing = [f"{name}: {why}" for name, why in ready.failures.items() if why]
        message = f"STATUS=not ready: {'; '.join(failing)}" if failing else "STATUS=ready"
        message = message.replace("\n", " ")
        if self._path and message != self._sent:
            self._send(message if self._sent else f"READY=1\n{message}")
            self._sent = message

    def _send(self, message: str) -> None:
        # An error is no reason to stop: systemd may be restarting.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(message.encode(), self._path)

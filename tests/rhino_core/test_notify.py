"""What a daemon reports to systemd."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rhino_core.health import Notifier, Report


def test_the_start_and_each_change_of_health_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notifier = Notifier()
        assert "NOTIFY_SOCKET" not in os.environ
        for failure in ("gone\nfor now", "gone\nfor now", ""):
            notifier.report(Report({"manager": failure, "disk": ""}))
        sent = [systemd.recv(1000).decode() for _ in range(2)]
        assert sent == ["READY=1\nSTATUS=not ready: manager: gone for now", "STATUS=ready"]
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.recv(1000)
    notifier.report(Report({"manager": "gone"}))  # nobody listens any more


def test_nothing_is_told_without_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notifier = Notifier()
    sent: list[str] = []
    monkeypatch.setattr(notifier, "_send", sent.append)
    notifier.report(Report({}))
    assert sent == []

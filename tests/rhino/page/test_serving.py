from __future__ import annotations

import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rhino.page import serving


def test_a_browser_is_started_without_the_token_on_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)

    def use() -> None:
        (address,) = opened
        assert "secret" not in address
        file = Path(urlsplit(address).path)
        assert 'url=http://127.0.0.1:7480/#token=secret"' in file.read_text()
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    serving.open_in_browser("http://127.0.0.1:7480/#token=secret", use)
    assert not Path(urlsplit(opened[0]).path).exists()

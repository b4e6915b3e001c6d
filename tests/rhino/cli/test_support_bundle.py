"""`rhino support-bundle` without a cluster; with one, see test_no_secrets."""

from __future__ import annotations

import errno
import tarfile
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from rhino.cli import exit_codes, support_bundle
from rhino.cli.main import app
from rhino_core.errors import AccessDeniedError, AlreadyThereError, NoSpaceError
from tests.rhino_core.support.metrics import free_port

LOG = """\
spark.rhino.manager=host:7461 fs.s3a.secret.key=abc123, retries=3
{"level": "info", "password": "hunter2", "token" : 'xyz', "bytes": 12}
AWS_SECRET_ACCESS_KEY: wJalr/K7
{"message": "options {\\"password\\": \\"hunter3\\", \\"rows\\": 7}", "at": 5}
{"message": "a text: {\\"said\\": \\"{\\\\\\"token\\\\\\": \\\\\\"hunter4\\\\\\"}\\"}", "at": 6}
{"password": "hun\\"ter5", "at": 7}
fs.azure.account.key.store.dfs.core.windows.net=azure1== AZURE_STORAGE_ACCOUNT_KEY=azure2== storage.account_key: azure3
-----BEGIN PRIVATE KEY-----
MIIB
-----END PRIVATE KEY-----
the end
"""


@pytest.fixture
def nobody() -> str:
    """An address without a manager."""
    return f"127.0.0.1:{free_port()}"


def test_logs_are_reported_without_secrets_although_nobody_answers(
    tmp_path: Path, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support_bundle, "TIMEOUT_S", 1.0)
    (tmp_path / "driver.log").write_text(LOG)
    output = tmp_path / "report.tar.gz"
    arguments = ["support-bundle", "--manager", nobody, "--output", str(output)]
    logs = ["--log", str(tmp_path / "driver.log"), "--log", str(tmp_path / "none.log")]
    result = CliRunner().invoke(app, [*arguments, *logs])
    assert result.exit_code == exit_codes.UNREACHABLE, result.output
    assert output.stat().st_mode & 0o777 == 0o600
    with tarfile.open(output) as archive:
        log = archive.extractfile("report/logs/0-driver.log")
        missing = archive.extractfile("report/not-there.txt")
        assert log is not None
        assert missing is not None
        text, why = log.read().decode(), missing.read().decode()
    for secret in ("abc123", "hunter2", "xyz", "wJalr", "MIIB", "hunter3", "hunter4", "ter5", "azure"):
        assert secret not in text.replace("fs.azure", "")
    assert "retries=3" in text
    assert '"bytes": 12' in text
    assert '\\"rows\\": 7}", "at": 5}' in text
    assert '"at": 6}' in text
    assert '"at": 7}' in text
    assert text.endswith("the end\n")
    assert nobody in why
    assert "none.log" in why
    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, AlreadyThereError)


def test_a_manager_that_denies_access_was_reached(tmp_path: Path, nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> NoReturn:
        raise AccessDeniedError("no right to read")

    monkeypatch.setattr(support_bundle, "fetch_overview", denied)
    monkeypatch.setattr(support_bundle, "TIMEOUT_S", 0.1)
    output = tmp_path / "report.tar.gz"
    result = CliRunner().invoke(app, ["support-bundle", "--manager", nobody, "--output", str(output)])
    assert (result.exit_code, output.exists()) == (exit_codes.REFUSED, True)


def test_nothing_stays_of_a_bundle_without_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next try with the same name would be refused."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    bundle, output = support_bundle.Bundle(), tmp_path / "report.tar.gz"
    with monkeypatch.context() as patched:
        patched.setattr(tarfile.TarFile, "addfile", full)
        with pytest.raises(NoSpaceError, match="cannot be written"):
            bundle.write(output)
    bundle.write(output)
    assert output.stat().st_size > 0

"""What `rhino conf` prints of the settings for fast recovery."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rhino.cli.main import app
from spark_connector.conf import recovery_conf


@pytest.mark.parametrize(("arguments", "printed"), [([], True), (["--no-recovery"], False)])
def test_settings_for_fast_recovery_can_be_left_out(arguments: list[str], printed: bool) -> None:
    result = CliRunner().invoke(app, ["conf", "--format", "json", "--jar", "local:///rhino.jar", *arguments])
    settings = json.loads(result.stdout)
    assert ({name: settings.get(name) for name in recovery_conf()} == recovery_conf()) == printed
    assert (recovery_conf().keys() <= settings.keys()) == printed
    assert settings["spark.rhino.manager"]

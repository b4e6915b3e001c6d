"""The versions that are written down in several languages are the same."""

from __future__ import annotations

import re
from pathlib import Path

from rhino_core.version import PROTOCOL

PLUGIN = Path(__file__).parents[2] / "spark_connector/scala/rhino/driver/RhinoDriverPlugin.scala"


def test_the_driver_says_the_version_of_this_tree() -> None:
    (written,) = re.findall(r"val Protocol = (\d+)", PLUGIN.read_text())
    assert int(written) == PROTOCOL

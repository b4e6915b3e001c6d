"""Alerts and dashboard: Prometheus accepts them, and each alert names a section that exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
DASHBOARD = ROOT / "deploy/prometheus/dashboard.json"


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def sections(page: Path) -> set[str]:
    """The anchors of its headings."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_names_the_section_to_read(alert: dict[str, Any]) -> None:
    page, _, section = alert["annotations"]["runbook"].partition("#")
    assert (ROOT / page).is_file()
    assert not section or section in sections(ROOT / page)
    assert alert["labels"]["severity"] in ("page", "ticket")


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    board = json.loads(DASHBOARD.read_text())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places) > 10
    assert all(target["expr"] for panel in board["panels"] for target in panel["targets"])


@pytest.mark.nightly
def test_prometheus_accepts_the_rules_and_the_queries(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "install Debian's package prometheus"
    board = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = [{"record": f"panel:{at}", "expr": query} for at, query in enumerate(queries)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    command = [promtool, "check", "rules", str(ALERTS), str(tmp_path / "panels.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

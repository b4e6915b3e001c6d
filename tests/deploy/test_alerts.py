"""Each alert fires for series that call for it, and for no usual ones: by promtool, of Debian's package prometheus."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.deploy.test_prometheus import ALERTS, alerts

pytestmark = pytest.mark.nightly
HERE = 'instance="a"'


class Case(NamedTuple):
    """Series with their values of each minute, and the labels of the alert besides `severity`. `usual`: no alert."""

    series: dict[str, str]
    usual: dict[str, str]
    labels: dict[str, str]
    minutes: int = 20


def one(name: str, labels: str, bad: str, well: str, minutes: int = 20) -> Case:
    """One series whose labels stay."""
    series = f"{name}{{{labels}}}"
    found = dict(pair.split("=") for pair in labels.replace('"', "").split(","))
    return Case({series: bad}, {series: well}, found, minutes)


CASES = {
    "RhinoStateLost": one("rhino_prepares_not_ready_total", f'state="lost",{HERE}', "0 0 1x3", "7x20", 4),
    "RhinoUnderReplicated": one("rhino_under_replicated_virtual_nodes", HERE, "3x20", "0 3x8 0x11"),
    "RhinoScrubFoundDamage": one("rhino_scrub_errors_total", HERE, "0 0 1x20", "1x20"),
    "RhinoPushBytesChanged": one("rhino_push_alarms_total", f'kind="tag",{HERE}', "0 0 1x20", "1x20"),
    "RhinoManagerDown": Case(
        {f'up{{job="rhino-manager",{HERE}}}': "0x20"},
        # A standby has no metrics.
        {f'up{{job="rhino-manager",{HERE}}}': "0x20", 'up{job="rhino-manager",instance="b"}': "1x10 0 1x10"},
        {"job": "rhino-manager", "instance": "a"},
    ),
    "RhinoWitnessSilent": one("rhino_witnesses", f'state="silent",{HERE}', "1x20", "0x10 1x4 0x5"),
    "RhinoSidecarDown": one("up", f'job="rhino-sidecar",{HERE}', "0x20", "1x10 0 1x10"),
    "RhinoWorkerLost": one("rhino_workers", f'state="lost",{HERE}', "1x20", "0x15 1x3 0x2"),
    "RhinoWorkersFlap": one(
        "rhino_workers", f'state="live",{HERE}', "3 2 3 2 3 2 3 2 3 2 3 2 3 2 3 2", "3x10 2x10", 15
    ),
    "RhinoCommitsSlow": Case(
        {
            f'rhino_commit_duration_seconds_bucket{{kind="changelog",le="1.0",{HERE}}}': "0+90x20",
            f'rhino_commit_duration_seconds_bucket{{kind="changelog",le="5.0",{HERE}}}': "0+100x20",
            f'rhino_commit_duration_seconds_bucket{{kind="changelog",le="+Inf",{HERE}}}': "0+100x20",
        },
        {
            f'rhino_commit_duration_seconds_bucket{{kind="changelog",le="1.0",{HERE}}}': "0+100x20",
            f'rhino_commit_duration_seconds_bucket{{kind="changelog",le="+Inf",{HERE}}}': "0+100x20",
        },
        {"instance": "a"},
    ),
    "RhinoLoadsUnavailable": one("rhino_prepares_not_ready_total", f'state="unavailable",{HERE}', "0+1x20", "4x20"),
    "RhinoLoadsRemote": Case(
        {
            'rhino_prepare_duration_seconds_count{source="remote"}': "0+2x40",
            'rhino_prepare_duration_seconds_count{source="local"}': "0+8x40",
        },
        {
            'rhino_prepare_duration_seconds_count{source="remote"}': "0+1x40",
            'rhino_prepare_duration_seconds_count{source="local"}': "0+20x40",
        },
        {},
        40,
    ),
    "RhinoQueryWithoutBatch": Case(
        {f'rhino_query_batch_id{{query="q",{HERE}}}': "7x20", f'rhino_query_connected{{query="q",{HERE}}}': "1x20"},
        {f'rhino_query_batch_id{{query="q",{HERE}}}': "7x20", f'rhino_query_connected{{query="q",{HERE}}}': "0x20"},
        {"instance": "a", "query": "q"},
    ),
    "RhinoLagBytes": one("rhino_replication_lag_bytes", HERE, "5000000000x20", "5000000000x15 1000 5000000000x4"),
    "RhinoLagVersions": one("rhino_replication_lag_versions", HERE, "3x20", "3x15 1 3x4"),
    "RhinoMisses": one("rhino_locality_misses_total", HERE, "0+10x40", "0+1x40", 40),
    "RhinoHandoverFailed": one("rhino_handovers_total", f'outcome="rolled_back",{HERE}', "0 0 1x18", "1x20", 10),
    "RhinoDiskAlmostFull": one("rhino_disk_free_bytes", HERE, "1000000000x20", "3000000000x20"),
    "RhinoDiskFailing": one("rhino_disk_state", f'state="failing",{HERE}', "1x20", "0x20"),
    "RhinoNotAlive": one("rhino_health", f'check="journal",{HERE}', "0x20", "1x20"),
    "RhinoArchiveOld": one("rhino_query_archive_age_seconds", f'query="q",{HERE}', "90x20", "30x20"),
    "RhinoArchiveStopped": one("rhino_archive_stopped", HERE, "1x20", "0x20"),
    "RhinoRestoreDrillFailed": one("rhino_archive_failed_groups", HERE, "1x20", "0x20"),
    "RhinoRestoreDrillsMissing": one("rhino_archive_passed_drill_age_seconds", HERE, "90000x20", "400x20"),
}


def test_each_alert_has_a_case() -> None:
    assert CASES.keys() == {alert["alert"] for alert in alerts()}


def test_alerts_fire_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "install Debian's package prometheus"
    rules = yaml.safe_load(ALERTS.read_text())
    severity = {rule["alert"]: rule["labels"]["severity"] for group in rules["groups"] for rule in group["rules"]}
    for group in rules["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]  # promtool would compare their texts
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    tests = []
    for name, case in CASES.items():
        fires = [{"exp_labels": {**case.labels, "severity": severity[name]}}]
        for series, expected in ((case.series, fires), (case.usual, [])):
            tests.append(_test(name, series, case.minutes, expected))
    found = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(found))
    command = [promtool, "test", "rules", "tests.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _test(name: str, series: dict[str, str], minutes: int, expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": expected}],
    }

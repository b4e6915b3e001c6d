"""What `make audit` makes of the reports of pip-audit."""

from __future__ import annotations

import json
from typing import Any

from tools.audit import SKIPPED, verdict

WEAK = {"id": "PYSEC-2026-1", "fix_versions": ["1.1", "2.0"], "aliases": [], "description": "..."}


def report(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def test_no_weakness_is_good_and_what_was_not_checked_is_named() -> None:
    found = verdict(report({"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "editable"}), "")
    assert found == (0, "b was not checked: editable\n1 packages checked, 0 known weaknesses")


def test_a_weakness_fails_with_the_version_that_mends_it() -> None:
    unmended = {"id": "PYSEC-2026-2", "fix_versions": []}
    found = verdict(report({"name": "a", "version": "1.0", "vulns": [WEAK, unmended]}), "Found 2 known vulnerabilities")
    assert found.exit_code == 1
    assert "a 1.0: PYSEC-2026-1, mended in 1.1, 2.0" in found.text
    assert "a 1.0: PYSEC-2026-2, mended in no version" in found.text


def test_without_the_service_it_is_skipped_and_says_so() -> None:
    errors = "ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed"
    assert verdict("", errors) == (0, SKIPPED)
    mirror = verdict(report({"name": "a", "skip_reason": "Dependency not found on PyPI"}), "")
    assert (mirror.exit_code, mirror.text.startswith(SKIPPED)) == (0, True)


def test_any_other_failure_is_one() -> None:
    found = verdict("", "No module named pip_audit")
    assert found.exit_code == 2
    assert "No module named pip_audit" in found.text

"""`make audit`: asks the Python Packaging Advisory Database about all packages of this environment.

Ends with 1 if one of them has a known weakness, and with 0 if none has. Where the service cannot be reached nothing is
known: that is said, and ends with 0, so that a machine without a network can run everything else.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TIMEOUT_S = 900
SKIPPED = "skipped: the service of pip-audit cannot be reached from here, so nothing was checked"
UNREACHABLE = re.compile(
    r"ConnectionError|Failed to establish|NameResolution|Max retries exceeded|timed out|ProxyError|could not connect",
    re.IGNORECASE,
)


class Verdict(NamedTuple):
    exit_code: int
    text: str


def verdict(report: str, errors: str) -> Verdict:
    """The meaning of pip-audit's report (JSON; empty: there is none, and `errors` says why)."""
    if report.strip():
        packages: Sequence[Mapping[str, Any]] = json.loads(report)["dependencies"]
        skipped = [f"{one['name']} was not checked: {one['skip_reason']}" for one in packages if "skip_reason" in one]
        if len(skipped) == len(packages):
            return Verdict(0, f"{SKIPPED}: it knows none of {len(packages)} packages, as a mirror without it would")
        found = [_line(one, weakness) for one in packages for weakness in one.get("vulns", ())]
        summary = f"{len(packages) - len(skipped)} packages checked, {len(found)} known weaknesses"
        return Verdict(1 if found else 0, "\n".join([*skipped, *found, summary]))
    if UNREACHABLE.search(errors):
        return Verdict(0, SKIPPED)
    return Verdict(2, f"pip-audit has failed:\n{errors[-3000:]}")


def _line(package: Mapping[str, Any], weakness: Mapping[str, Any]) -> str:
    mended = ", ".join(weakness["fix_versions"]) or "no version"
    return f"{package['name']} {package['version']}: {weakness['id']}, mended in {mended}"


def audit(*about: str) -> Verdict:
    """Runs pip-audit with these arguments, which say what is audited."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        report.touch()
        command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--timeout", "30"]
        command += ["--format", "json", "--output", str(report), *about]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        return verdict(report.read_text(), done.stderr)


def main() -> int:
    found = audit("--local", "--skip-editable")
    print(found.text)
    return found.exit_code


if __name__ == "__main__":
    sys.exit(main())

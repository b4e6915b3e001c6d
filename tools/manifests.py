"""The manifests of deploy/kubernetes, rendered from the Helm chart with its default values.

python -m tools.manifests            renders deploy/kubernetes/rhino.yaml
python -m tools.manifests --check    fails if the file is not the rendered chart
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy/helm/rhino"
RENDERED = ROOT / "deploy/kubernetes/rhino.yaml"
HEADER = "# Rendered from deploy/helm/rhino by `python -m tools.manifests`. Change the chart, not this file.\n"


def rendered(*options: str) -> str:
    """Output of `helm template`. ValueError: the values or the chart are wrong."""
    helm = Path(sys.executable).parent / "helm"
    command = [str(helm), "template", "rhino", str(CHART), "--namespace", "rhino", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    lines = (line.rstrip() for line in done.stdout.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("# Source:")) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    text = HEADER + rendered()
    if not parser.parse_args().check:
        RENDERED.write_text(text)
    elif RENDERED.read_text() != text:
        print(f"{RENDERED.relative_to(ROOT)} is not the rendered chart: run python -m tools.manifests", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`make release-check VERSION=1.2.3`: checks that the tree is what its version, its tag and its changelog say.

Without VERSION the tag of the checked-out commit counts. `make release-check` builds the documents first, strictly.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = re.compile(r"\d+\.\d+\.\d+")
DATED = re.compile(r"## \[?(?P<version>\d+\.\d+\.\d+)\]? - \d{4}-\d{2}-\d{2}")
UNRELEASED = re.compile(r"## \[?Unreleased\]?", re.IGNORECASE)


def problems(root: Path, version: str) -> Iterator[str]:
    """Yields what speaks against a release of `version` from this tree, each with the way out."""
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    if declared != version:
        yield f"pyproject.toml says version {declared}, not {version}: set project.version"
    yield from _changelog_problems((root / "CHANGELOG.md").read_text(), version)
    if changed := _git(root, "status", "--porcelain"):
        yield f"the working tree has changes: commit or remove {', '.join(line[3:] for line in changed.splitlines())}"
    tagged = _git(root, "tag", "--list", f"v{version}", "--format=%(objectname)%(*objectname)")
    if tagged and not tagged.endswith(head := _git(root, "rev-parse", "HEAD")):
        yield f"the tag v{version} is on another commit than {head[:12]}: check out the tag, or take another version"


def _changelog_problems(text: str, version: str) -> Iterator[str]:
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    if sections and UNRELEASED.fullmatch(sections[0].splitlines()[0].strip()):
        if sections[0].splitlines()[1:] and any(line.strip() for line in sections[0].splitlines()[1:]):
            yield f"CHANGELOG.md has entries under Unreleased: head them '## {version} - <date>'"
            return
        sections = sections[1:]
    newest = sections[0].splitlines()[0].strip() if sections else "nothing"
    found = DATED.fullmatch(newest)
    if found is None or found["version"] != version:
        yield f"the newest heading of CHANGELOG.md is '{newest}': it must be '## {version} - <date>'"


def version_of_tag(root: Path) -> str | None:
    """Returns the version in the tag of the checked-out commit, such as "1.2.3" for v1.2.3."""
    tags = _git(root, "tag", "--points-at", "HEAD").splitlines()
    versions = [tag[1:] for tag in tags if tag.startswith("v") and VERSION.fullmatch(tag[1:])]
    return versions[0] if len(versions) == 1 else None


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    ).stdout.rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?", default="", help="default: that of the tag of the checked-out commit")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    version = arguments.version.removeprefix("v") or version_of_tag(arguments.root)
    if not version:
        sys.exit("error: the checked-out commit has no tag vX.Y.Z, or several: use make release-check VERSION=X.Y.Z")
    if not VERSION.fullmatch(version):
        sys.exit(f"error: version '{version}': must be three numbers, such as 1.2.3")
    found = list(problems(arguments.root, version))
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"{version} can be released from this tree")


if __name__ == "__main__":
    main()

"""What `make release-check` refuses, in a small repository of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.release_check import problems, version_of_tag

SCRIPT = Path(__file__).parents[2] / "tools" / "release_check.py"


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "tag.gpgSign=false", "-c", "commit.gpgSign=false"]
    subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True)


def commit(root: Path, *, version: str = "1.2.3", changelog: str = "## 1.2.3 - 2026-11-23\n\n- New.\n") -> None:
    (root / "pyproject.toml").write_text(f'[project]\nname = "x"\nversion = "{version}"\n')
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}\n## 1.2.2 - 2026-01-01\n\n- Old.\n")
    git(root, "add", "-A")
    git(root, "commit", "-m", "all")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def test_a_clean_tree_with_its_changelog_can_be_released(root: Path) -> None:
    commit(root)
    assert list(problems(root, "1.2.3")) == []


@pytest.mark.parametrize("heading", ["## [1.2.3] - 2026-11-23", "## [Unreleased]\n\n## [1.2.3] - 2026-11-23"])
def test_headings_may_be_links_below_an_empty_unreleased(root: Path, heading: str) -> None:
    commit(root, changelog=f"{heading}\n\n- New.\n")
    assert list(problems(root, "1.2.3")) == []


@pytest.mark.parametrize("changelog", ["", "## 1.2.3\n\n- New.\n", "## 1.2.4 - 2026-11-23\n\n- New.\n"])
def test_the_newest_heading_must_be_the_version_with_its_date(root: Path, changelog: str) -> None:
    commit(root, changelog=changelog)
    (problem,) = problems(root, "1.2.3")
    assert "'## 1.2.3 - <date>'" in problem


def test_entries_under_unreleased_belong_to_no_version(root: Path) -> None:
    commit(root, changelog="## Unreleased\n\n- Newer.\n\n## 1.2.3 - 2026-11-23\n\n- New.\n")
    (problem,) = problems(root, "1.2.3")
    assert "under Unreleased" in problem


def test_the_declared_version_must_be_the_same(root: Path) -> None:
    commit(root, version="1.2.4")
    (problem,) = problems(root, "1.2.3")
    assert "pyproject.toml says version 1.2.4" in problem


def test_changed_and_unknown_files_are_named(root: Path) -> None:
    commit(root)
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 - 2026-11-23\n")
    (root / "forgotten.py").touch()
    (problem,) = problems(root, "1.2.3")
    assert "CHANGELOG.md" in problem
    assert "forgotten.py" in problem


@pytest.mark.parametrize("annotation", [[], ["-a", "-m", "release"]])
def test_a_tag_must_be_on_this_commit(root: Path, annotation: list[str]) -> None:
    commit(root)
    git(root, "tag", *annotation, "v1.2.3")
    assert list(problems(root, "1.2.3")) == []
    assert version_of_tag(root) == "1.2.3"
    git(root, "commit", "--allow-empty", "-m", "later")
    (problem,) = problems(root, "1.2.3")
    assert "v1.2.3 is on another commit" in problem
    assert version_of_tag(root) is None


def test_the_command_says_what_is_wrong_and_fails(root: Path) -> None:
    commit(root)

    def check(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), "--root", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert check("v1.2.3").returncode == 0
    assert "use make release-check VERSION=X.Y.Z" in check().stderr
    assert "version '1.2'" in check("1.2").stderr
    refused = check("1.2.4")
    assert refused.returncode == 1
    assert refused.stderr.count("error: ") == 2

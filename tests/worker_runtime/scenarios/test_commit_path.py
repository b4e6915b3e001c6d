"""The path of one commit is short, and ARCHITECTURE.md names the files on it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.worker_runtime.cluster import ROOT
from tests.worker_runtime.commit_path import STAGES, commit_path

FILES_MAX, FUNCTIONS_MAX = 26, 49  # lower them when the path becomes shorter


async def test_the_path_of_a_commit_is_short_and_documented(tmp_path: Path) -> None:
    everything = await commit_path(tmp_path, commits=10)
    path = [crossed for crossed in everything if crossed.on_path]
    crossed_names = {(crossed.file, crossed.function) for crossed in path}
    assert crossed_names >= STAGES, "a stage was renamed, or the commit does not pass it any more"
    files = {crossed.file for crossed in path}
    assert len(files) <= FILES_MAX
    assert len(path) <= FUNCTIONS_MAX
    _, _, section = (ROOT / "ARCHITECTURE.md").read_text().partition("## The life of one commit")
    rows, _, _ = section.partition("\n## ")
    named = re.findall(r"`([\w./]+\.py)`", rows)
    assert {file for file in files if not any(f"/{file}".endswith(f"/{name}") for name in named)} == set()

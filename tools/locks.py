"""`make locks`: the newest versions of all packages that pyproject.toml allows, with hashes, for pip.

pip installs nothing else from such a file, so a changed or substituted package is refused. The files name no package
index. They hold for every supported version of Python.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy/requirements"
OLDEST_PYTHON = "3.11"
TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class Lock:
    """`about`: what the file is for. `extras`: of this project, with everything that they need."""

    name: str
    about: str
    extras: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # the packages to keep of it, or all

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.txt"

    @property
    def header(self) -> str:
        return f"# {self.about}\n# Made by `make locks`. Install it with `pip install --require-hashes --no-deps -r`.\n"


LOCKS = (
    # With the extra, because the image cannot be given packages afterwards. obstore: 5.6 MB, 16 MB unpacked.
    Lock("daemons", "Everything that managers, sidecars and the command line need beside the wheel.", ("archive",)),
    Lock(
        "development", "Everything that development, tests, documents and benchmarks need.", ("dev", "bench", "release")
    ),
    Lock(
        "spark-4.2",
        "Replaces Spark 4.3 of development.txt by Spark 4.2. Install it afterwards.",
        ("spark",),
        ("pyspark==4.2.*",),
        ("pyspark", "py4j"),
    ),
)


def compiled(lock: Lock) -> str:
    """Asks the package index. Ends with the words of the resolver if it fails."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--quiet", "--universal", "--native-tls"]
    command += ["--python-version", OLDEST_PYTHON, "--generate-hashes", "--no-header", "--no-annotate"]
    command += [word for extra in lock.extras for word in ("--extra", extra)]
    command += ["--constraints", "-"] if lock.constraints else []
    done = subprocess.run(
        command,
        cwd=ROOT,
        input="\n".join(lock.constraints),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{lock.name}: {done.stderr.strip()}")
    return lock.header + kept(done.stdout, lock.only)


def kept(text: str, only: tuple[str, ...]) -> str:
    """The pins of the named packages. A pin begins a line, and its hashes follow, indented."""
    if not only:
        return text
    found, keeps = [], False
    for line in text.splitlines(keepends=True):
        if not line.startswith((" ", "#")):
            keeps = line.split("==")[0] in only
        if keeps:
            found.append(line)
    return "".join(found)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for lock in LOCKS:
        lock.path.write_text(compiled(lock))
        print(f"{lock.path.relative_to(ROOT)}: {lock.path.read_text().count('==')} packages")


if __name__ == "__main__":
    main()

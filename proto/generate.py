"""Generates the Python modules of rhino_pb from its .proto files; `--check` fails when the checked-in ones differ."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def generate(out: Path) -> list[Path]:
    """Writes modules and type stubs below `out`; returns the relative paths written."""
    from grpc_tools import protoc

    sources = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "rhino_pb").glob("*.proto"))
    flags = [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    # Beside this interpreter: the virtual environment need not be active.
    scripts = Path(sys.executable).parent
    plugins = [f"--plugin=protoc-gen-{kind}={scripts}/protoc-gen-{kind}" for kind in ("mypy", "mypy_grpc")]
    if protoc.main(["protoc", f"-I{ROOT}", *plugins, *flags, *sources]) != 0:
        raise SystemExit("protoc failed")
    return sorted(p.relative_to(out) for p in (out / "rhino_pb").glob("*_pb2*.py*"))


def drifted() -> list[str]:
    """Names of checked-in files that differ from what the .proto files give, or have no .proto."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = {path: (Path(folder) / path).read_text() for path in generate(Path(folder))}
    present = {p.relative_to(ROOT) for p in (ROOT / "rhino_pb").glob("*_pb2*.py*")}
    changed = [p for p, text in fresh.items() if p not in present or (ROOT / p).read_text() != text]
    return sorted(str(p) for p in {*changed, *(present - set(fresh))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    if not parser.parse_args().check:
        generate(ROOT)
        return
    if names := drifted():
        sys.exit(f"generated code differs from its .proto files: {', '.join(names)}; run python proto/generate.py")


if __name__ == "__main__":
    main()

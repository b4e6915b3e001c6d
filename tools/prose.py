"""`python -m tools.prose`: counts relatives and bare sentences in docstrings and documents; fails above the limits.

Relatives are the words which, who, whose, that, what, where, per 100 words. A bare sentence begins with "What" or "Who"
and is no question. Both stand where a noun would name the thing. Names in backticks and code do not count.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NO_CODE = {"tests", "proto", "docs"}
RELATIVE = re.compile(r"\b(?:which|who|whose|that|what|where)\b", re.IGNORECASE)
BARE = re.compile(r"(?:^|(?<=[.!?:] ))(?:What|Who)\b[^.?!]*(?:[.!]|$)")
WORD = re.compile(r"[A-Za-z][\w'-]*")


@dataclass(frozen=True)
class Limit:
    per_100_words: float
    bare: int


LIMITS = {"docstrings": Limit(2.0, 0), "documents": Limit(2.0, 0)}


@dataclass(frozen=True)
class Count:
    words: int
    relatives: int
    bare: list[str]  # with their places

    @property
    def per_100_words(self) -> float:
        return 100 * self.relatives / max(1, self.words)


def docstrings() -> Iterator[tuple[str, str]]:
    """Place and text of each docstring outside of tests and generated code."""
    for path in sorted(ROOT.glob("*/**/*.py")):
        folder = path.relative_to(ROOT).parts[0]
        if folder.startswith(".") or folder in NO_CODE or folder == "build":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if text := ast.get_docstring(node):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text


def documents() -> Iterator[tuple[str, str]]:
    """Place and text of each paragraph of the documents."""
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for paragraph in re.split(r"\n\s*\n", text):
            yield str(path.relative_to(ROOT)), paragraph


def count(texts: Iterator[tuple[str, str]]) -> Count:
    words = relatives = 0
    bare: list[str] = []
    for place, text in texts:
        plain = " ".join(re.sub(r"`[^`]*`", "x", text).split())
        words += len(WORD.findall(plain))
        relatives += len(RELATIVE.findall(plain))
        bare += [f"{place}: {sentence}" for sentence in BARE.findall(plain)]
    return Count(words, relatives, bare)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.prose", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the bare sentences")
    arguments = parser.parse_args()
    failed = False
    for name, counted in (("docstrings", count(docstrings())), ("documents", count(documents()))):
        limit = LIMITS[name]
        print(
            f"{name}: {counted.per_100_words:.2f} relatives per 100 words (at most {limit.per_100_words}), "
            f"{len(counted.bare)} bare sentences (at most {limit.bare})"
        )
        if arguments.list:
            print("\n".join(counted.bare))
        failed |= counted.per_100_words > limit.per_100_words or len(counted.bare) > limit.bare
    if failed:
        sys.exit("error: say the thing with a noun; `python -m tools.prose --list` shows the bare sentences")


if __name__ == "__main__":
    main()

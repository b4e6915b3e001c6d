"""The commands of the documents, and whether what they print is what the documents show."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s+# .*$", re.MULTILINE)
_NUMBER = re.compile(r"\d+(\.\d+)?")
_ID = re.compile(r"^[0-9a-f]{12}$")  # of a handover
_UNIT = re.compile(r"^(bytes|B|kB|MB|GB|TB)$")


def blocks(page: str, title: str) -> list[tuple[str, str]]:
    """Language and text of each block below a heading of any level, until the next heading of that level or above."""
    text = (ROOT / page).read_text()
    head = re.search(rf"^(#+) {re.escape(title)}\n", text, re.MULTILINE)
    assert head is not None, f"{page}: no heading {title!r}"
    next_head = re.compile(rf"^#{{1,{len(head[1])}}} ", re.MULTILINE)
    found, at = [], head.end()
    for block in BLOCK.finditer(text, head.end()):
        if next_head.search(text, at, block.start()):
            break
        indent, language, inside = block.groups()
        found.append((language, re.sub(f"^{indent}", "", inside, flags=re.MULTILINE)))
        at = block.end()
    return found


def documented(page: str, line: str) -> str:
    """Returns the command `line`. Fails if the page does not show it, with or without a comment."""
    text = (ROOT / page).read_text()
    shown = [
        COMMENT.sub("", given.strip())
        for _, kind, block in BLOCK.findall(text)
        if kind == "sh"
        for given in block.splitlines()
    ]
    assert line in shown, f"{page} does not show the command: {line}"
    return line


def session(text: str) -> list[tuple[str, list[str]]]:
    """The commands after `$ ` in a block, each with the lines of output that follow."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def absent(shown: list[str], printed: str) -> list[str]:
    """The lines of a document that have no line in the output that differs in numbers, ids and units of bytes only."""
    found = {_shape(line) for line in printed.splitlines()}
    return [line for line in shown if _shape(line) not in found]


def _shape(line: str) -> tuple[str, ...]:
    return tuple(_UNIT.sub("bytes", _NUMBER.sub("0", _ID.sub("id", word))) for word in line.split())

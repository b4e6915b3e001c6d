"""`python -m tools.diagrams`: draws the Mermaid diagrams of the pages, into docs/diagrams. `pip install '.[diagrams]'`.

The site shows these files, so no reader's browser loads a program that draws. A file is named by its diagram, and those
without one are deleted.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/diagrams"
FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Labels are text of the SVG. HTML in them would need fonts and styles of the page, and an image has none.
FONT = "DejaVu Sans, Verdana, sans-serif"  # the widths are those of the first one
OPTIONS: dict[str, Any] = {"htmlLabels": False, "flowchart": {"htmlLabels": False}, "fontFamily": FONT}


def file_of(source: str) -> Path:
    return FOLDER / f"{hashlib.sha256(source.strip().encode()).hexdigest()[:16]}.svg"


def wanted() -> dict[Path, str]:
    """The diagrams of all pages, by their files."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return {file_of(source): source for page in pages for source in FENCE.findall(page.read_text())}


def main() -> None:
    import mermaidx

    found = wanted()
    FOLDER.mkdir(exist_ok=True)
    for old in set(FOLDER.iterdir()) - set(found):
        old.unlink()
    for path, source in found.items():
        if not path.exists():
            path.write_text(mermaidx.render(source, theme="neutral", config=OPTIONS).svg() + "\n")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

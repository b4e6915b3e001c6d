"""`python -m tools.test_failures FOLDER`: what failed, from the JUnit files of `make test`.

`make test` runs its parts side by side, and the output of a part that failed may stand far above the end.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

LINES = 60  # of each failure: its end tells most


def failures(file: Path) -> list[str]:
    """One text for each test that failed or could not run: its name, and the end of its traceback and output."""
    found = []
    for case in ElementTree.parse(file).iter("testcase"):
        bad = [part for part in case if part.tag in ("failure", "error")]
        if bad:
            output = [part for part in case if part.tag in ("system-out", "system-err")]
            lines = [line for part in (*output, *bad) for line in (part.text or part.get("message") or "").splitlines()]
            name = f"{case.get('classname')}::{case.get('name')}"
            found.append("\n".join([f"FAILED {name} in {file.stem}", *lines[-LINES:]]))
    return found


def main() -> int:
    files = sorted(Path(sys.argv[1]).glob("*.xml"))
    found = [text for file in files for text in failures(file)]
    print("\n\n".join(found) or f"no test failed in {', '.join(f.stem for f in files) or 'any part'}: see above")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Parts of the tests of folder that other tests use as well."""

from __future__ import annotations

from pathlib import Path

LOCKER = Path(__file__).parents[1] / "replace" / "locker.py"

"""Parts of the tests of modifications that other tests use as well."""

from pathlib import Path

ROOT = Path(__file__).parents[3]

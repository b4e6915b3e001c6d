"""Holds for every test run."""

from rhino_core import failpoints

failpoints.refuse_unknown()

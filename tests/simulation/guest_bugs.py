"""Deliberate bugs in how guests become owners, by patching the core of the replication manager."""

from __future__ import annotations

import pytest

from replication_manager.protocol.changes.following import Following

Patch = pytest.MonkeyPatch


def guests_stay_guests(patch_: Patch) -> None:
    """However long somebody writes who is no member, it never joins."""
    patch_.setattr(Following, "_join", lambda self, group, writer: [])


def guest_of_one_operator_joins(patch_: Patch) -> None:
    """Ownership follows only the first of the operators of one task."""
    original = Following._join
    patch_.setattr(
        Following,
        "_join",
        lambda self, group, writer: original(self, group, writer) if not group.group.operator else [],
    )


GUEST_BUGS = [guests_stay_guests, guest_of_one_operator_joins]

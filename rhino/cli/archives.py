"""The archive of a manager, for the commands that need one."""

from __future__ import annotations

from rhino.client.handover_client import HandoverClient
from rhino_core.errors import PreconditionError
from rhino_model.archives import Archive


def archive_of(manager: str) -> Archive:
    """Asks the manager. Raises PreconditionError if it has no archive."""
    with HandoverClient(manager) as client:
        found = client.archive()
    if not found.url:
        raise PreconditionError(f"the manager at {manager} has no archive: start it with --archive")
    return found

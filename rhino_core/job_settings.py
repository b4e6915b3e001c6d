"""The settings of a job when its query is restarted with other values."""

from __future__ import annotations

from dataclasses import replace

from rhino_core.ids import Durability, JobSettings


def settings_from_now(present: JobSettings, asked: JobSettings) -> JobSettings:
    """Returns the settings of the job after its query has been started with `asked`.

    A synced job stays synced, because sidecars remember the stronger durability.
    """
    synced = Durability.SYNCED in (present.durability, asked.durability)
    settled = replace(asked, durability=Durability.SYNCED) if synced else asked
    same = replace(settled, min_copies=settled.copies) == replace(present, min_copies=present.copies)
    return present if same else settled

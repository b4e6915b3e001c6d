"""Which settings of a job may change when its query is restarted with other values."""

from __future__ import annotations

from dataclasses import replace

from rhino_core.errors import PreconditionError
from rhino_core.ids import Durability, JobSettings, Placement


def check_changeable(job: str, present: JobSettings, asked: JobSettings) -> None:
    """Raises PreconditionError for a change of where files are placed, which is fixed while the job has state."""
    if asked.placement is not present.placement:
        raise PreconditionError(
            f"job {job}: its placement is {present.placement.value!r} and cannot become {asked.placement.value!r}: set "
            f"spark.rhino.placement to {present.placement.value!r}, or start the query with a new checkpoint"
        )
    if present.placement is not Placement.BLOCK:
        return
    counts = (present.replication_factor, present.copies)
    if counts != (asked.replication_factor, asked.copies):
        raise PreconditionError(
            f"job {job}: its files are spread with replication factor {counts[0]} and {counts[1]} copies, which cannot "
            f"become {asked.replication_factor} and {asked.copies}: set spark.rhino.replicationFactor and "
            "spark.rhino.minCopies as before, or start the query with a new checkpoint"
        )


def settings_from_now(job: str, present: JobSettings, asked: JobSettings) -> JobSettings:
    """Returns the settings that apply after a query of the job has been started with `asked`.

    A synced job stays synced, because sidecars remember the stronger durability. Raises as `check_changeable`.
    """
    check_changeable(job, present, asked)
    synced = Durability.SYNCED in (present.durability, asked.durability)
    settled = replace(asked, durability=Durability.SYNCED) if synced else asked
    same = replace(settled, min_copies=settled.copies) == replace(present, min_copies=present.copies)
    return present if same else settled

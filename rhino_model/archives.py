"""The archive as people see it: its place, and how far it is with each query."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ArchivedQuery:
    """One query in the archive. Times in Unix milliseconds; 0: none. A batch of -1: none.

    `batch_id`: of the newest archived batch, `logged_ms`: when it was logged, `written_ms`: when it was whole in the
    archive. `logged_batch_id`: the newest logged batch. `whole`: the archive has that batch. `age_s`: seconds since the
    oldest logged batch later than the archived one; 0 if there is none. `error`: of the last attempt.
    """

    job: str
    name: str
    batch_id: int
    logged_ms: int
    written_ms: int
    logged_batch_id: int
    whole: bool
    age_s: float
    running: bool
    error: str


@dataclass(frozen=True, slots=True)
class Archive:
    """`url` is empty if there is no archive. `cluster`: id of this cluster in the archive."""

    url: str
    cluster: str
    queries: tuple[ArchivedQuery, ...]

"""The archive as people see it: its place, and how far it is with each query."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ArchivedQuery:
    """One query in the archive. Times in Unix milliseconds; 0: none. A batch of -1: none.

    `batch_id`: of the newest archived batch, `logged_ms`: when it was logged, `written_ms`: when it was whole in the
    archive. `logged_batch_id`: the newest logged batch. `whole`: the archive has that batch. `age_s`: seconds since the
    oldest logged batch later than the archived one; 0 if there is none. `error`: of the last attempt. `every_s`:
    between two archived batches. `why`: what makes it more than the cluster's interval; empty: nothing.
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
    every_s: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class DrillCounts:
    """Restore drills since the start of the manager: one every `every_s` seconds; 0: none.

    `unproven`: only Spark can read the content; all bytes were right. `not_run`: they could not be tried; `why`: the
    newest one. `passed_age_s`: seconds since the last passed one, or since the first archived batch if none has passed;
    None: no batch is archived. `failures`: of groups, until a later drill of the group passes.
    """

    every_s: float = 0.0
    passed: int = 0
    unproven: int = 0
    failed: int = 0
    not_run: int = 0
    passed_age_s: float | None = None
    failures: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveUsage:
    """Requests to the store since the start of the manager, `seconds` ago, without restores and drills.

    `writes`: to put, list and delete. `reads`: to get.
    """

    seconds: float = 0.0
    writes: int = 0
    reads: int = 0
    uploaded_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Archive:
    """`url` is empty if there is no archive. `cluster`: id of this cluster in the archive.

    `every_s`: seconds between two archived batches of a query. `keep`: batches that stay, as in --archive-keep.
    `error`: why the archive has stopped; empty: it works.
    """

    url: str
    cluster: str
    queries: tuple[ArchivedQuery, ...]
    every_s: float = 0.0
    keep: str = ""
    error: str = ""
    drills: DrillCounts = DrillCounts()
    usage: ArchiveUsage = ArchiveUsage()


NO_ARCHIVE = Archive("", "", ())

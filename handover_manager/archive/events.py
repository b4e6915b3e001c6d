"""Events and effects of the archive machine. Times are monotonic seconds unless they say otherwise."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from handover_manager.view import ClusterView
from rhino_archive.manifest import CheckpointFile, Manifest, Part
from rhino_core.ids import GroupId, StoreVersion, Worker


@dataclass(frozen=True, slots=True)
class BatchKnown:
    """A driver has logged a batch, with these versions of all stores. `logged_ms`: Unix milliseconds."""

    job: str
    batch_id: int
    versions: tuple[StoreVersion, ...]
    logged_ms: int
    query: str = ""
    location: str = ""


@dataclass(frozen=True, slots=True)
class ViewSeen:
    view: ClusterView


@dataclass(frozen=True, slots=True)
class NewestFound:
    """Answers FindNewest: the newest manifest of the query in the archive, or None if there is none."""

    job: str
    newest: Manifest | None


@dataclass(frozen=True, slots=True)
class PartUploaded:
    """Answers Upload. `refused`: groups without a part, because a version was not there. `requests`: to the store."""

    job: str
    round: int
    worker_id: str
    part: Part | None
    refused: tuple[GroupId, ...] = ()
    requests: int = 0


@dataclass(frozen=True, slots=True)
class UploadFailed:
    """Answers Upload. `archive`: the archive refuses or does not answer, so that another worker would fail, too."""

    job: str
    round: int
    worker_id: str
    error: str
    archive: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointRead:
    """Answers ReadCheckpoint. `error`: why there are no files; empty: they are here."""

    job: str
    batch_id: int
    files: tuple[CheckpointFile, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """Answers WriteManifest, with the manifest in the archive."""

    round: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class StepFailed:
    """FindNewest (round 0) or WriteManifest has failed. `stranger`: another cluster may write, and we may not."""

    job: str
    round: int
    error: str
    stranger: bool = False


class Outcome(enum.Enum):
    """Of a restore drill. MISSING: the manifest is not there. NOT_RUN: it could not be tried.

    UNPROVEN: the files are right, but only Spark can read their content.
    """

    PASSED = "passed"
    UNPROVEN = "unproven"
    FAILED = "failed"
    MISSING = "missing"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class DrillEnded:
    """Answers Drill. `why`: it has not passed."""

    number: int
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveWanted:
    """Somebody wants the newest batch in the archive now. Errors do not make it wait any longer."""

    job: str


@dataclass(frozen=True, slots=True)
class JobGone:
    """The query was forgotten."""

    job: str


@dataclass(frozen=True, slots=True)
class Due:
    """A deadline has passed."""


Event = (
    BatchKnown
    | ViewSeen
    | NewestFound
    | PartUploaded
    | UploadFailed
    | CheckpointRead
    | ManifestWritten
    | StepFailed
    | DrillEnded
    | ArchiveWanted
    | JobGone
    | Due
)


@dataclass(frozen=True, slots=True)
class FindNewest:
    """Read the newest manifest of the query, and claim the right to write if nobody has it."""

    job: str


@dataclass(frozen=True, slots=True)
class Upload:
    """Let a worker upload the closures of these versions. `basis`: their groups' parts of the newest archived batch."""

    job: str
    round: int
    worker: Worker
    versions: tuple[StoreVersion, ...]
    basis: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ReadCheckpoint:
    """Let the driver send the files of the query checkpoint that belong to the batch. Perhaps it never answers."""

    job: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Check the right to write, then write."""

    round: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class StopUploads:
    """The round is over: cancel its calls."""

    job: str
    round: int


@dataclass(frozen=True, slots=True)
class Drill:
    """Let a worker restore a group of an archived batch, and compare it with the versions that it holds.

    `manifest`: name of the object.
    """

    number: int
    job: str
    batch_id: int
    manifest: str
    group: GroupId
    versions: tuple[StoreVersion, ...]
    worker: Worker


@dataclass(frozen=True, slots=True)
class DrillFailed:
    """Tell people."""

    job: str
    error: str


Effect = FindNewest | Upload | ReadCheckpoint | WriteManifest | StopUploads | Drill | DrillFailed

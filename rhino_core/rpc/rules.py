"""The rules for the fields of all messages. rhino_core/rpc/gate.py applies them.

The rule of a field is found by "<message>.<field>", else by "<field>". A field name has one meaning in all messages. A
field of a message type is checked by the rules of this type. Booleans and enumerations need no rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rhino_core import ids
from rhino_core.archive_url import is_archive
from rhino_core.epochs import issued_ceiling
from rhino_core.errors import InvalidRequestError

LINEAGE_MAX = 100_000  # versions without a snapshot
KNOWN_MAX = 1 << 13  # size of the set of values that have already passed a rule
KNOWN_CHARACTERS_MAX = 256  # longer values are not remembered: they would take hundreds of megabytes
SHOWN = 80  # length of a refused value in the error message


class Name:
    """A string that is a key, a name or a path. A value outside the grammar is refused."""

    def __init__(self, grammar: Callable[[str], object], what: str, *, may_be_empty: bool = False) -> None:
        """`grammar` returns a false value, or raises InvalidRequestError, for a forbidden string."""
        self.good = {""} if may_be_empty else set[str]()
        self._grammar = grammar
        self._what = what
        self._empty = may_be_empty

    def learn(self, value: str, field: str) -> None:
        """Checks a value not in `good`, and remembers it. Raises InvalidRequestError."""
        try:
            allowed = self._grammar(value)
        except InvalidRequestError:
            allowed = False
        if not allowed:
            shown = repr(value) if len(value) <= SHOWN else f"{value[:SHOWN]!r}... ({len(value)} characters)"
            raise InvalidRequestError(f"{field} = {shown}: must be {self._what}{' or empty' * self._empty}")
        if len(value) > KNOWN_CHARACTERS_MAX:
            return
        if len(self.good) >= KNOWN_MAX:
            self.good.clear()
            self.good.update({""} if self._empty else ())
        self.good.add(value)


class Number:
    """A range of numbers. Infinity and NaN are never inside."""

    def __init__(self, least: float, most: float, what: str = "") -> None:
        self.least, self.most = least, most
        self.what = what or f"a number from {least} to {most}"


class Limit:
    """A limit of the length of a bytes field."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.what = f"at most {most} bytes long"


class Text:
    """Text for people. It is never refused, but truncated, and unprintable characters are replaced."""

    def __init__(self, characters: int, *, lines: bool = False) -> None:
        self.characters = characters
        self._lines = lines

    def cleaned(self, value: str) -> str:
        if len(value) > self.characters:
            value = f"{value[: self.characters - 3]}..."
        keep = "\n\t" if self._lines else ""
        return "".join(c if c.isprintable() or c in keep else "?" for c in value)


Rule = Name | Number | Limit | Text


def _matches(pattern: str) -> Callable[[str], object]:
    return re.compile(rf"(?:{pattern})\Z").match


def _inbox(name: str) -> bool:
    return name not in (".", "..") and bool(_PLAIN(name))


def _below(path: str) -> bool:
    return len(path) <= 1024 and all(map(_inbox, path.split("/")))


_PLAIN = _matches(r"[^/\x00-\x1f\x7f]{1,255}")
_LOCATION = Name(_matches(r"[^\x00-\x1f\x7f-\x9f]{1,4096}"), "a path, at most 4096 characters", may_be_empty=True)
_BELOW = Name(_below, "a path below a folder, at most 1024 characters")
_ARCHIVE = Name(is_archive, "the URL of an archive", may_be_empty=True)
_SAFE = ids.SAFE_NAMES
_JOB = Name(ids.is_safe, f"a query id: {_SAFE}")
_JOB_OR_NONE = Name(ids.is_safe, f"a query id: {_SAFE}", may_be_empty=True)
_WORKER = Name(ids.is_safe, f"a worker id: {_SAFE}")
_WORKER_OR_NONE = Name(ids.is_safe, f"a worker id: {_SAFE}", may_be_empty=True)
_STORE = Name(ids.is_safe, f"a store name: {_SAFE}")
_SAFE_OR_NONE = Name(ids.is_safe, _SAFE, may_be_empty=True)
_FILE = Name(ids.parse_name, "<version>_<id>.changelog, <version>_<id>.zip, SSTs/<n>-<id>.sst or logs/<n>-<id>.log")
_FILE_OR_NONE = Name(ids.parse_name, "the name of an SST or log file", may_be_empty=True)
_ID = Name(_matches(r"[0-9A-Za-z-]{1,64}"), "up to 64 letters, digits and '-'", may_be_empty=True)
_LIFE = _matches(r"[0-9A-Za-z][0-9A-Za-z._-]{0,80}(/[0-9A-Za-z][0-9A-Za-z._-]{0,80})?")
_PROCESS = Name(_LIFE, "a name that is unique per process start", may_be_empty=True)
_INCARNATION = Name(_LIFE, "<store uuid>/<boot id>")
_HOST = Name(ids.is_host, "a host name or address, at most 255 characters")
_HOST_OR_NONE = Name(ids.is_host, "a host name or address, at most 255 characters", may_be_empty=True)
_ADDRESS = Name(ids.is_address, '"host:port"')
_ADDRESSES = Name(ids.are_addresses, '"host:port", or several')
_NODE = Name(_matches(r"[0-9]{1,9}/[0-9]{1,9}"), 'a virtual node, "<task group>/<partition>", e.g. "0/5"')
_INBOX = Name(_inbox, "a plain file name inside the session's inbox")
_LABEL = Text(256)
_TEXT = Text(16 * 1024, lines=True)

ANYTHING = Number(0, (1 << 64) - 1)  # the value is never used for computation
_COUNT = Number(0, 1 << 53)
_FILE_SIZE = Number(0, 1 << 46, "a size up to 64 TiB")
_SIZE = Number(0, 1 << 62, "a size up to 4 EiB")
_SECONDS = Number(0, 10**9, "0 to 10^9 seconds")
_MILLISECONDS = Number(0, 1 << 53, "0 to 2^53 milliseconds")
_BATCH = Number(-1, ids.VERSION_MAX)
_GENERATION = Number(0, issued_ceiling(), "a generation of at most eleven years from now")
_COPIES = Number(0, 1024)

MAP_KEY = Name(ids.is_safe, _SAFE)


def _of(rule: Rule, *fields: str) -> Iterable[tuple[str, Rule]]:
    return ((name, rule) for field in fields for name in field.split())


FIELDS: dict[str, Rule] = dict(
    pair
    for pairs in (
        # names
        _of(_JOB, "job"),
        _of(_JOB_OR_NONE, "DescribeGroupsRequest.job Move.job Action.job branch_of"),
        _of(_LABEL, "ListDecisionsRequest.job WatchLoadRequest.job"),
        # These fields may also contain the name of a query:
        _of(_LABEL, "ForgetJobRequest.job ForgetJobReply.job HandoverRequest.job ExplainRequest.job"),
        _of(
            _LABEL,
            "ListHandoversRequest.job UndoForgetJobRequest.job MoveCheckpointRequest.job SetJobOwnerRequest.job "
            "ListActionsRequest.job ArchiveNowRequest.job",
        ),
        _of(_STORE, "store"),
        _of(_ID, "checkpoint_id witness witnesses"),
        _of(_WORKER, "worker_id worker workers holders Move.target"),
        _of(
            _WORKER_OR_NONE,
            "ExecutorChanged.worker_id written_by target origin desired_worker actual_worker "
            "ListActionsRequest.worker Action.worker user",
        ),
        _of(_INCARNATION, "incarnation"),
        _of(_HOST, "host"),
        _of(_HOST_OR_NONE, "ExecutorChanged.host DriverHello.host DesiredWorker.host driver_host"),
        _of(_LOCATION, "location"),
        _of(_ADDRESS, "peer_address witness_addresses silent_witness_addresses"),
        _of(_ADDRESSES, "manager"),
        _of(_FILE, "name references"),
        _of(_FILE_OR_NONE, "same_as"),
        _of(_INBOX, "inbox_name"),
        _of(_BELOW, "CheckpointFile.path JournalValue.key"),
        _of(_NODE, "virtual_node virtual_nodes waiting_for hot"),
        _of(_PROCESS, "process_id candidate"),
        _of(_ARCHIVE, "archive ArchiveStatus.url"),
        _of(
            _SAFE_OR_NONE,
            "cluster digest session_id run_id handover_id former_token DriverWelcome.token owner zone rack",
        ),
        # texts
        _of(_LABEL, "mode outcome unit SourceLag.source query keep"),
        _of(_LABEL, "client protocol_version application_id spark_version executor_id by kind strategy"),
        _of(
            _LABEL,
            "QueryStarted.name JobStatus.name BatchLoad.name Action.name ArchivedQuery.name rhino_version forgotten_by",
        ),
        _of(
            _TEXT,
            "message disk_message reason reasons blockers why basis intent store_root inbox QueryEnded.error "
            "CheckpointRead.error ArchivedQuery.error workers_wanted_why detail unproven "
            "ArchiveStatus.error failures",
        ),
        # numbers
        _of(Number(0, (1 << 31) - 1), "operator operators task_group branch_operator"),
        _of(Number(0, ids.PARTITIONS_MAX - 1), "partition"),
        _of(Number(0, ids.PARTITIONS_MAX), "partitions"),
        _of(Number(0, ids.VERSION_MAX), "version lag_versions"),
        _of(_BATCH, "batch_id confirmed_batch_id logged_batch_id"),
        _of(_GENERATION, "generation promised"),
        _of(Number(0, ids.COUNTER_MAX), "counter"),
        _of(Number(0, LINEAGE_MAX), "lineage_before"),
        _of(_COPIES, "replication_factor min_copies required_copies copies"),
        _of(Number(0, 65535, "a port"), "port"),
        _of(_FILE_SIZE, "size_bytes offset bytes credit_bytes GroupReport.stored_bytes lag_bytes"),
        _of(_SIZE, "stored_bytes free_bytes capacity_bytes resident_bytes resident_bytes_max replicated_bytes"),
        _of(_SIZE, "replicated_bytes_out replicated_bytes_in fetched_bytes granted_bytes memory_limit_bytes"),
        _of(_SIZE, "resumed_bytes linked_bytes checked_bytes total_bytes bytes_to_move state_bytes bytes_moved"),
        _of(_SIZE, "JobUsage.bytes ForgetWorkerReply.bytes uploaded_bytes left_bytes"),
        _of(ANYTHING, "rows input_rows"),  # Spark sends -1 for an unknown count: do not refuse the batch's report
        _of(ANYTHING, "crc32c transfer prepares_max commits_max protocol"),
        _of(_COUNT, "number checked_files errors repaired files stored_files groups owned_groups member_groups"),
        _of(
            _COUNT,
            "configuration_epoch configuration_epochs misses missed_now staying worker_indexes skipped executors",
        ),
        _of(_COUNT, "AdaptationDecision.times workers_wanted BatchLoad.workers passed failed not_run"),
        _of(_COUNT, "ArchiveDrills.unproven writes reads"),
        _of(_COUNT, "JournalPosition.index after committed matched activity"),
        _of(_COUNT, "format ArchiveExtent.pack batch_size gap_batches max_transfers DrainStatus.virtual_nodes"),
        _of(_SECONDS, "commit_timeout_s timeout_s deadline_s gap_s oldest_s lease_s heartbeat_interval_s settling_s"),
        _of(_SECONDS, "last_heartbeat_ago_s task_s pause_s total_s prepare_s left_s delete_in_s batch_s trigger_s"),
        _of(_SECONDS, "batch_ago_s batch_interval_s notice_s leaves_in_s"),
        _of(_SECONDS, "predicted_pause_s predicted_total_s age_s every_s passed_age_s ArchiveUsage.seconds"),
        _of(Number(0, 1e18), "behind SourceLag.read"),
        _of(Number(0, 1e15), "gain_s cost_s measured expected planned shares"),
        _of(_MILLISECONDS, "duration_ms started_ms finished_ms marked_ms start_at_ms at_ms modified_ms forgotten_ms"),
        _of(_MILLISECONDS, "logged_ms written_ms"),
        _of(Number(0, 1e15), "Measured.error"),
        # bytes
        _of(Limit(64), "token secret lease pack packs"),
        _of(Limit(32 << 20), "data JournalValue.value"),
    )
    for pair in pairs
)

# Any other absent message is checked like an empty one, and refused if it needs a name.
MAY_BE_ABSENT = {"ArchiveReply.part", "StatReply.file", "FetchChunk.file", "HandoverStatus.plan", "FileEntry.version"}

LENGTH = 10_000  # entries of a list, except for:
LENGTHS = {
    name: most
    for most, names in {
        # One entry per group, store or virtual node of a large query, or per file of a group.
        2 * ids.PARTITIONS_MAX: """
            RegisterRequest.groups HeartbeatRequest.changed HeartbeatRequest.lags GroupUpdate.groups GroupUpdate.left
            GroupUpdate.floors DescribeGroupsReply.groups
            BatchLogged.versions BatchLogged.floors BatchLogged.work CheckVersionsRequest.versions
            CheckVersionsReply.checks BranchRequest.links BranchRequest.empty
            InventoryReply.files InventoryReply.floors
            ArchiveRequest.versions ArchiveReply.refused ArchiveManifest.parts ArchivePart.groups ArchivePart.packs
            DrillRequest.versions
            ArchivedVersions.packs ArchivedVersions.versions ArchivedVersion.files ArchivedVersion.bytes
            ListReply.files ListReply.modified_ms
            JobStatus.virtual_nodes DesiredLocations.locations ForgetWorkerReply.only_member
            HandoverRequest.virtual_nodes HandoverPlan.steps PlannedStep.moves
            HandoverPlan.hot HandoverStatus.waiting_for HandoverStatus.steps FileEntry.references
        """,
        LINEAGE_MAX: "FileEntry.lineage CommitRequest.lineage",
        # all forgotten jobs; all records of the journal
        1_000_000: "GroupUpdate.forgotten JournalRecord.values JournalSnapshot.values",
        50_000: "ListHandoversReply.handovers ListJobsReply.jobs ArchiveStatus.queries DescribeReply.commits",
        100: "TaskGroup.operators",
        1_000: "QueryStarted.task_groups",
    }.items()
    for name in names.split()
}

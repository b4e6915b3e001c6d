"""Settings of the two daemons: frozen dataclasses, validated, loaded once and passed down.

This is the only place with their names, units, defaults, meanings and limits (see `rhino_core.setting`). The values
come from flags, the environment and config files (`rhino.daemons.loading`).
"""

# No postponed annotations: the rules in them are evaluated here, in the scope of this module.

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from rhino_core.archive_url import is_archive
from rhino_core.ids import ALL_INTERFACES, is_address, is_safe, with_port, with_ports
from rhino_core.setting import (
    ADDRESS,
    ADVERTISED,
    ANY,
    FLAG,
    FOLDER,
    HOST,
    KIB,
    LABEL,
    LOG_LEVEL,
    MANAGER,
    MIB,
    NOT_NEGATIVE,
    PORT,
    POSITIVE,
    SOCKET,
    WORKER_ID,
    Rule,
    Setting,
    check,
)

CHUNK_BYTES = 512 * KIB  # smaller chunks need more messages, larger ones do not fit into the processor's caches
MANAGER_PORT = 7461
DEFAULT_MANAGER = f"127.0.0.1:{MANAGER_PORT}"
DEFAULT_SOCKET = Path("/run/rhino/sidecar.sock")
MANAGER_DATA = Path("/var/lib/rhino-manager")
SIDECAR_PORT = 7462
HOUR_S = 3600
DAY_S = 24 * HOUR_S

REQUIRED, OFF = "required", "off"  # values of --push-encryption
SERVER, MUTUAL = "server", "mutual"  # values of --metrics-tls, with OFF

TLS_DIR_VARIABLE, CLUSTER_KEY_VARIABLE = "RHINO_TLS_DIR", "RHINO_CLUSTER_KEY"  # for daemons and commands


_TLS_DIR = Setting(
    "Folder with the certificate of this process: ca.crt, tls.crt and tls.key, in PEM. New files count at once.",
    Rule("a folder, and not together with --cluster-key", lambda value, s: not (value and s.cluster_key), "FOLDER"),
    also=TLS_DIR_VARIABLE,
)
_CLUSTER_KEY = Setting(
    "File with the key of the cluster, from which every process makes its certificates. `rhino cert key` makes one.",
    Rule("a file", metavar="FILE"),
    also=CLUSTER_KEY_VARIABLE,
)
_REFUSED_NAMES = Setting(
    "Callers who are refused although their certificates still count: a file with `rhino://CLUSTER/ROLE/NAME`, one a "
    "line. It may change at any time.",
    Rule(
        "a file, with --tls-dir or --cluster-key",
        lambda value, settings: not value or bool(settings.tls_dir or settings.cluster_key),
        metavar="FILE",
    ),
)
_INSECURE = Setting(
    "No encryption and no identities: whoever reaches the ports can read and delete all state.",
    Rule(
        "false with --tls-dir and --cluster-key",
        lambda value, settings: not (value and (settings.tls_dir or settings.cluster_key)),
    ),
)
_PUSH_ENCRYPTION = Setting(
    "Encryption of files on their way to other sidecars. off: for networks that are trusted or encrypted below.",
    Rule(
        "required or off; without --tls-dir and --cluster-key only off",
        lambda value, s: value in ("", OFF) or (value == REQUIRED and bool(s.cluster_key or s.tls_dir)),
        "MODE",
    ),
    unset="required with --tls-dir and --cluster-key, otherwise off",
)
_AUDIT_LOG = Setting(
    "File for the audit log: who changed what, and who was refused. Without it, only the ordinary log has these lines.",
    Rule("a file", metavar="FILE"),
)
_METRICS = Setting("Serve Prometheus metrics on this port, on the host of --listen. 0: no metrics.", PORT)
_HEALTH = Setting(
    "Serve health only, over plain HTTP, on this port, on the host of --listen. Probes then do not share a port with "
    "those who read metrics. 0: only at --metrics-port.",
    PORT,
)
_METRICS_TLS = Setting(
    "Encryption of --metrics-port. server: HTTPS with this daemon's certificate. mutual: the same, and only operators "
    "and readers of the cluster may read metrics; health is for everybody. off: HTTP.",
    Rule(
        "off, server or mutual; without --tls-dir and --cluster-key only off",
        lambda value, s: value == OFF or (value in (SERVER, MUTUAL) and bool(s.cluster_key or s.tls_dir)),
        "MODE",
    ),
)


def addresses_of(witnesses: str) -> dict[str, str]:
    """Worker ids by the addresses of "[WORKER=]HOST:PORT,...". The worker id is the host if it is not given.

    Raises ValueError for another form, and for an address or a worker with two entries.
    """
    found = [entry.rpartition("=")[::2] for entry in witnesses.split(",")]
    by_address = {address: worker or address.rpartition(":")[0] for worker, address in found}
    if not all(is_address(address) and is_safe(worker) for address, worker in by_address.items()):
        raise ValueError(witnesses)
    if len({*by_address.values()}) < len(found):
        raise ValueError(f"{witnesses}: one of them has two entries")
    return by_address


def _are_witnesses(text: str, settings: Any) -> bool:
    try:
        return not text or len(addresses_of(text)) % 2 == 1
    except ValueError:
        return False


_REFLECTION = Setting("Tell every gRPC client which calls there are. For debugging.", FLAG)
_TRACES = Setting(
    "Send spans of commits and handovers to OpenTelemetry, as the variables OTEL_* say. Needs the extra `otel`.", FLAG
)
_LOG_LEVEL = Setting("Log messages of this level and above.", LOG_LEVEL)


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """Settings of one sidecar."""

    DAEMON: ClassVar[str] = "sidecar"

    data_dir: Annotated[
        Path, Setting("Store, index and inbox. Must be on the file system of spark.local.dir, for hard links.", FOLDER)
    ]
    host: Annotated[str, Setting("Name or address of this node.", HOST, unset="$SPARK_LOCAL_IP or host name")]
    worker_id: Annotated[str, Setting("Stable, unique name of this worker.", WORKER_ID, unset="the host")]
    listen: Annotated[
        str,
        Setting("Address for other sidecars and the manager. Port 0: a free port.", ADDRESS, unset="HOST:7462"),
    ]
    advertise: Annotated[
        str,
        Setting(
            "Address under which others reach --listen, if it is another one: containers, mapped ports. Without a "
            "port: that of --listen. The push port must have the same number on both sides.",
            ADVERTISED,
            unset="that of --listen, with --host instead of 0.0.0.0",
        ),
    ] = ""
    zone: Annotated[
        str,
        Setting(
            "Zone of this node: what fails together, such as an availability zone. Copies go to different zones as far "
            "as possible.",
            LABEL,
        ),
    ] = ""
    rack: Annotated[
        str, Setting("Rack of this node within its zone. Copies in one zone go to different racks.", LABEL)
    ] = ""
    socket: Annotated[Path, Setting("Unix socket for the executors of this node.", SOCKET)] = DEFAULT_SOCKET
    manager: Annotated[
        str,
        Setting(
            f"Address of the manager, or of all managers, with commas. Without a port: {MANAGER_PORT}.",
            MANAGER,
            also="RHINO_MANAGER",
        ),
    ] = DEFAULT_MANAGER
    push_port: Annotated[
        int, Setting("Port for files from other sidecars, on the host of --listen. 0: a free port.", PORT)
    ] = 0
    socket_group: Annotated[
        str, Setting("Unix group that may connect to the socket. Of its members, only --allow-uid may attach.", ANY)
    ] = ""
    allow_uid: Annotated[
        str,
        Setting(
            "Unix users that may attach to the socket, beside the sidecar's user and root: names or numbers, with "
            "commas.",
            Rule("Unix users, with commas", metavar="USERS"),
        ),
    ] = ""
    tls_dir: Annotated[str, _TLS_DIR] = ""
    cluster_key: Annotated[str, _CLUSTER_KEY] = ""
    refused_names: Annotated[str, _REFUSED_NAMES] = ""
    insecure: Annotated[bool, _INSECURE] = False
    push_encryption: Annotated[str, _PUSH_ENCRYPTION] = ""
    audit_log: Annotated[str, _AUDIT_LOG] = ""
    reserve_bytes: Annotated[
        int,
        Setting(
            "Disk space that stays free, in MiB. Below it, new files are refused.", NOT_NEGATIVE, "reserve_mb", MIB
        ),
    ] = 256 * MIB
    memory_limit_bytes: Annotated[
        int,
        Setting(
            "Memory for files on their way from other sidecars, in MiB.",
            Rule("at least twice --window-kb", lambda value, settings: value >= 2 * settings.window_bytes),
            "memory_limit_mb",
            MIB,
        ),
    ] = 128 * MIB
    commit_timeout_s: Annotated[
        float, Setting("A commit fails when nothing has moved for so many seconds, unless the query says.", POSITIVE)
    ] = 60.0
    prepare_timeout_s: Annotated[
        float, Setting("A task's load fails when nothing of the missing files has come for so many seconds.", POSITIVE)
    ] = 120.0
    catch_up_bytes_per_s: Annotated[
        int,
        Setting("Bandwidth of catch-up, in MiB/s. 0: no limit.", NOT_NEGATIVE, "catch_up_mb_per_s", MIB),
    ] = 0
    catch_up_transfers: Annotated[
        int, Setting("Files that a catch-up fetches at the same time.", Rule("1 or more", lambda value, _: value >= 1))
    ] = 4
    archive_bytes_per_s: Annotated[
        int,
        Setting(
            "Bandwidth of uploads to the archive and of restore drills, in MiB/s. 0: no limit.",
            NOT_NEGATIVE,
            "archive_mb_per_s",
            MIB,
        ),
    ] = 0
    spark_local_dir: Annotated[
        str,
        Setting(
            "Folder of executors for local files (SPARK_LOCAL_DIRS). The sidecar removes folders in it that a killed "
            "executor has left. Without this setting it removes none.",
            Rule("a folder", metavar="FOLDER"),
        ),
    ] = ""
    excess_grace_s: Annotated[
        float,
        Setting(
            "Minutes that a copy stays after its last use when others have taken it over.",
            NOT_NEGATIVE,
            "excess_grace_min",
            60,
        ),
    ] = 600.0
    scrub_period_s: Annotated[
        float,
        Setting("Check every stored file once in so many days. 0: never.", NOT_NEGATIVE, "scrub_period_days", DAY_S),
    ] = 7.0 * DAY_S
    scrub_bytes_per_s: Annotated[
        int, Setting("Pace of these checks, in MiB/s. 0: no checks.", NOT_NEGATIVE, "scrub_mb_per_s", MIB)
    ] = 16 * MIB
    window_bytes: Annotated[
        int,
        Setting(
            "Credit of one sender in a lane, in KiB.",
            Rule("at least --chunk-kb", lambda value, settings: value >= settings.chunk_bytes),
            "window_kb",
            KIB,
        ),
    ] = 8 * MIB
    chunk_bytes: Annotated[
        int,
        Setting(
            "Size of the parts in which files are sent, in KiB.",
            Rule("4 to 16384", lambda value, settings: value in range(4 * KIB, 16 * MIB + 1)),
            "chunk_kb",
            KIB,
        ),
    ] = CHUNK_BYTES
    metrics_port: Annotated[int, _METRICS] = 0
    health_port: Annotated[int, _HEALTH] = 0
    metrics_tls: Annotated[str, _METRICS_TLS] = OFF
    reflection: Annotated[bool, _REFLECTION] = False
    traces: Annotated[bool, _TRACES] = False
    log_level: Annotated[str, _LOG_LEVEL] = "info"
    empty_store: Annotated[
        bool,
        Setting("If the index is lost or damaged, delete the files in the store and begin anew.", FLAG, one_start=True),
    ] = False
    forget_journal: Annotated[
        bool,
        Setting(
            "Delete the managers' journal that this sidecar keeps as a witness: only if a majority has lost theirs.",
            FLAG,
            one_start=True,
        ),
    ] = False

    def __post_init__(self) -> None:
        check(self)

    @property
    def listen_host(self) -> str:
        return self.listen.rpartition(":")[0]

    def peer_address(self, port: int) -> str:
        """The sidecar's address for other processes. `port`: its listening port."""
        if self.advertise:
            return with_port(self.advertise, port)
        return f"{self.host if self.listen_host in ALL_INTERFACES else self.listen_host}:{port}"

    @staticmethod
    def complete(values: dict[str, Any], environment: Mapping[str, str], host_name: str) -> dict[str, Any]:
        """Returns the values with the machine-dependent defaults."""
        host = values.get("host") or environment.get("SPARK_LOCAL_IP") or host_name
        named = {"manager": with_ports(values["manager"], MANAGER_PORT)} if "manager" in values else {}
        return {"host": host, "worker_id": host, "listen": f"{host}:{SIDECAR_PORT}"} | values | named


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """Settings of the manager process: replication manager and handover manager with one journal."""

    DAEMON: ClassVar[str] = "manager"

    data_dir: Annotated[Path, Setting("The journal of the manager, unless witnesses keep it.", FOLDER)] = MANAGER_DATA
    listen: Annotated[str, Setting("Address for sidecars, drivers and commands. Port 0: a free port.", ADDRESS)] = (
        DEFAULT_MANAGER
    )
    witnesses: Annotated[
        str,
        Setting(
            "Sidecars that keep the journal, in the place of --data-dir. Then several managers may run: one leads, and "
            "another one takes over when it is gone. A worker id is needed if it differs from the host. With "
            "--bootstrap, they begin with the journal in --data-dir, if there is one.",
            Rule("1, 3, 5 or another odd number of different sidecars", _are_witnesses, "[WORKER=]HOST:PORT,..."),
        ),
    ] = ""
    witness_lease_s: Annotated[
        float,
        Setting(
            "A manager takes over when the leading one has been silent for about so many seconds. All managers need "
            "the same value.",
            Rule("0.5 to 60", lambda value, settings: 0.5 <= value <= 60),
        ),
    ] = 2.0
    tls_dir: Annotated[str, _TLS_DIR] = ""
    cluster_key: Annotated[str, _CLUSTER_KEY] = ""
    refused_names: Annotated[str, _REFUSED_NAMES] = ""
    insecure: Annotated[bool, _INSECURE] = False
    audit_log: Annotated[str, _AUDIT_LOG] = ""
    heartbeat_interval_s: Annotated[
        float,
        Setting(
            "Seconds between the heartbeats of a sidecar. Many sidecars send them less often: all of them together "
            "1000 in a second, and each at least five in --lease-s.",
            POSITIVE,
        ),
    ] = 0.5
    lease_s: Annotated[
        float,
        Setting(
            "A worker that is silent for so many seconds is lost.",
            Rule("at least four times --heartbeat-interval-s", lambda value, s: value >= 4 * s.heartbeat_interval_s),
        ),
    ] = 5.0
    suspect_lease_s: Annotated[
        float,
        Setting(
            "The same, in seconds, after the connection of its sidecar has broken.",
            Rule("above 0 and at most --lease-s", lambda value, settings: 0 < value <= settings.lease_s),
        ),
    ] = 1.0
    return_lease_s: Annotated[
        float,
        Setting("The same, in seconds, after its sidecar was stopped. Not for a worker that was drained.", POSITIVE),
    ] = 10.0
    lag_cap_s: Annotated[
        float,
        Setting("A member that lacks a file of a commit for so many seconds is replaced. 0: never.", NOT_NEGATIVE),
    ] = 20.0
    lag_cap_bytes: Annotated[
        int,
        Setting("A member that lacks more than so many MiB is replaced. 0: never.", NOT_NEGATIVE, "lag_cap_mb", MIB),
    ] = 32 * 1024 * MIB
    scatter_width: Annotated[
        int,
        Setting(
            "Over about how many other workers the copies of a worker's state are spread. With more, more of them "
            "share its load when it is lost, and state is lost more often when several are lost at once. 0: over all.",
            NOT_NEGATIVE,
        ),
    ] = 4
    forget_grace_s: Annotated[
        float,
        Setting(
            "Hours for which the state of a forgotten query stays: `rhino forget --undo` takes it back. 0: none.",
            Rule("0 to 87600", lambda value, settings: 0 <= value <= 10 * 365 * DAY_S),
            "forget_grace_h",
            HOUR_S,
        ),
    ] = 24.0 * HOUR_S
    archive: Annotated[
        str,
        Setting(
            "Archive of state: s3://..., gs://..., az://... or a folder. Without it there is none.",
            Rule(
                "s3://..., gs://... or az://... without credentials, or an absolute path",
                lambda value, settings: not value or is_archive(value),
                "URL",
            ),
        ),
    ] = ""
    archive_every_s: Annotated[
        float, Setting("A logged batch goes to the archive at most every so many seconds.", POSITIVE)
    ] = 10.0
    archive_requests_a_day: Annotated[
        int,
        Setting(
            "Uploads use so many requests a day at most: batches go to the archive less often. 0: no limit.",
            NOT_NEGATIVE,
        ),
    ] = 0
    archive_drill_every_s: Annotated[
        float,
        Setting("A part of an archived batch is restored and compared every so many seconds. 0: never.", NOT_NEGATIVE),
    ] = 300.0
    archive_keep: Annotated[
        str,
        Setting(
            "Archived batches that stay: the newest, and the newest of each of the last hours and days with batches.",
            Rule(
                "numbers of newest, hourly and daily, such as newest=3,daily=7",
                lambda value, settings: (
                    re.fullmatch(r"(?:(?:newest|hourly|daily)=\d{1,6}(?:,(?!$)|$))+", value) is not None
                ),
                "NUMBERS",
            ),
        ),
    ] = "newest=3,hourly=24,daily=7"
    adaptation: Annotated[
        str,
        Setting(
            "Whether virtual nodes move by themselves when the load of a query is uneven. observe: `rhino why` tells "
            "what would move. act: they move. off: nothing is observed.",
            Rule("off, observe or act", lambda value, _: value in ("off", "observe", "act"), "MODE"),
        ),
    ] = "observe"
    adaptation_band: Annotated[
        float,
        Setting(
            "The busiest worker of a query may exceed the mean task time by this part before adaptation acts.",
            Rule("0.05 to 10", lambda value, _: 0.05 <= value <= 10),
        ),
    ] = 0.2
    adaptation_cool_down_s: Annotated[
        float,
        Setting(
            "Minutes that a virtual node stays where adaptation has moved it, unless its load rises by half.",
            POSITIVE,
            "adaptation_cool_down_min",
            60,
        ),
    ] = 600.0
    adaptation_scale_in_s: Annotated[
        float,
        Setting(
            "Minutes for which fewer workers must have sufficed before fewer are wanted (`rhino scale`).",
            POSITIVE,
            "adaptation_scale_in_min",
            60,
        ),
    ] = 3600.0
    adaptation_catch_up_s: Annotated[
        float,
        Setting(
            "Minutes in which the wanted workers (`rhino scale`) work off what a query is behind its sources.",
            POSITIVE,
            "adaptation_catch_up_min",
            60,
        ),
    ] = 600.0
    adaptation_hourly_bytes: Annotated[
        int, Setting("MiB that adaptation may copy in an hour.", NOT_NEGATIVE, "adaptation_hourly_mb", MIB)
    ] = 64 * 1024 * MIB
    adaptation_hourly_moves: Annotated[
        int, Setting("Virtual nodes that adaptation may move in an hour.", NOT_NEGATIVE)
    ] = 256
    metrics_port: Annotated[int, _METRICS] = 0
    health_port: Annotated[int, _HEALTH] = 0
    metrics_tls: Annotated[str, _METRICS_TLS] = OFF
    reflection: Annotated[bool, _REFLECTION] = False
    traces: Annotated[bool, _TRACES] = False
    log_level: Annotated[str, _LOG_LEVEL] = "info"
    bootstrap: Annotated[
        bool, Setting("Start with an empty journal: the very first start, or after its loss.", FLAG, one_start=True)
    ] = False

    def __post_init__(self) -> None:
        check(self)

    @staticmethod
    def complete(values: dict[str, Any], environment: Mapping[str, str], host_name: str) -> dict[str, Any]:
        """As for the sidecar. No default depends on the machine."""
        return values


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment for a daemon of one's own, without settings of other daemons."""
    prefixes = tuple(f"RHINO_{kind.DAEMON.upper()}_" for kind in (SidecarSettings, ManagerSettings))
    left_out = (*prefixes, TLS_DIR_VARIABLE, CLUSTER_KEY_VARIABLE)
    return {name: value for name, value in environment.items() if not name.startswith(left_out)}

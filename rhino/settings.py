"""Settings of the two daemons: frozen dataclasses, validated, loaded once and handed down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rhino.errors import InvalidSettingError

MIB = 1024 * 1024
CHUNK_BYTES = 512 * 1024  # smaller costs more messages, larger falls out of the processor's caches


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raises InvalidSettingError naming the setting, its value and what is allowed."""
    if not condition:
        raise InvalidSettingError(f"setting {name} = {value!r}: must be {allowed}")


def check_address(name: str, value: str) -> None:
    """Raises InvalidSettingError unless `value` is "host:port" with a port from 0 to 65535."""
    host, _, port = value.rpartition(":")
    require(bool(host) and port.isdigit() and int(port) <= 65535, name, value, '"host:port"')


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """One sidecar. `data_dir` must be on the file system of spark.local.dir for hard links."""

    worker_id: str  # stable, unique name of this worker
    host: str  # host name by which Spark knows this node's executors
    data_dir: Path  # store, index and inbox
    socket: Path  # Unix socket of the local API
    listen: str  # "host:port" of the peer service; port 0 picks a free one
    manager: str  # "host:port" of the manager
    push_port: int = 0  # where files of other workers come in, at the host of `listen`; 0: any free one
    memory_limit_bytes: int = 128 * MIB  # bound of all credit granted to senders
    window_bytes: int = 8 * MIB  # credit granted to one sender per lane
    chunk_bytes: int = CHUNK_BYTES  # payload of one frame
    commit_timeout_s: float = 60.0  # default time a Commit may wait for copies
    prepare_timeout_s: float = 120.0  # time a Prepare may fetch
    catch_up_transfers: int = 4  # files pulled at the same time during catch-up
    catch_up_bytes_per_s: int = 0  # bandwidth limit of catch-up; 0: none
    reserve_bytes: int = 256 * MIB  # free space below which new files are refused
    excess_grace_s: float = 600.0  # copies of groups that the worker has left stay so long after their last use
    scrub_period_s: float = 7 * 24 * 3600.0  # every stored file is read and checked this often; 0: never by itself
    scrub_bytes_per_s: int = 16 * MIB  # pace of the scrubs that begin by themselves; 0: none begins
    reflection: bool = True  # gRPC server reflection
    metrics_port: int = 0  # of Prometheus metrics, on the host of `listen`; 0: none

    def __post_init__(self) -> None:
        require(0 <= self.metrics_port <= 65535, "metrics_port", self.metrics_port, "a port, or 0 for none")
        require(bool(self.worker_id) and "/" not in self.worker_id, "worker_id", self.worker_id, "a name without '/'")
        require(bool(self.host), "host", self.host, "the host name of this node in Spark")
        check_address("listen", self.listen)
        check_address("manager", self.manager)
        require(self.push_port in range(65536), "push_port", self.push_port, "0 to 65535")
        require(self.chunk_bytes in range(4096, 16 * MIB + 1), "chunk_bytes", self.chunk_bytes, "4096 to 16 MiB")
        require(self.window_bytes >= self.chunk_bytes, "window_bytes", self.window_bytes, "at least chunk_bytes")
        require(
            self.memory_limit_bytes >= 2 * self.window_bytes,
            "memory_limit_bytes",
            self.memory_limit_bytes,
            "at least two windows",
        )
        require(self.commit_timeout_s > 0, "commit_timeout_s", self.commit_timeout_s, "above 0")
        require(self.prepare_timeout_s > 0, "prepare_timeout_s", self.prepare_timeout_s, "above 0")
        require(self.catch_up_transfers >= 1, "catch_up_transfers", self.catch_up_transfers, "1 or more")
        require(self.catch_up_bytes_per_s >= 0, "catch_up_bytes_per_s", self.catch_up_bytes_per_s, "0 or more")
        require(self.reserve_bytes >= 0, "reserve_bytes", self.reserve_bytes, "0 or more")
        require(self.excess_grace_s >= 0, "excess_grace_s", self.excess_grace_s, "0 or more")
        require(self.scrub_period_s >= 0, "scrub_period_s", self.scrub_period_s, "0 or more")
        require(self.scrub_bytes_per_s >= 0, "scrub_bytes_per_s", self.scrub_bytes_per_s, "0 or more")


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """The manager process: replication manager and handover manager with one journal."""

    data_dir: Path  # the journal
    listen: str  # "host:port"; port 0 picks a free one
    heartbeat_interval_s: float = 0.5  # asked of the sidecars
    lease_s: float = 5.0  # a worker silent for this long is lost
    suspect_lease_s: float = 1.0  # as lease_s, once its heartbeat stream has broken
    lag_cap_s: float = 20.0  # a member that a changelog or zip is owed for longer is dropped from the group; 0: none is
    lag_cap_bytes: int = 32 * 1024 * MIB  # the same for all bytes that are owed to it; 0: none is
    bootstrap: bool = False  # an empty journal is meant
    reflection: bool = True  # gRPC server reflection
    metrics_port: int = 0  # of Prometheus metrics, on the host of `listen`; 0: none

    def __post_init__(self) -> None:
        require(0 <= self.metrics_port <= 65535, "metrics_port", self.metrics_port, "a port, or 0 for none")
        check_address("listen", self.listen)
        require(self.heartbeat_interval_s > 0, "heartbeat_interval_s", self.heartbeat_interval_s, "above 0")
        require(
            self.lease_s >= 4 * self.heartbeat_interval_s, "lease_s", self.lease_s, "four heartbeat intervals or more"
        )
        require(
            0 < self.suspect_lease_s <= self.lease_s, "suspect_lease_s", self.suspect_lease_s, "above 0, to lease_s"
        )
        require(self.lag_cap_s >= 0, "lag_cap_s", self.lag_cap_s, "0 or more")
        require(self.lag_cap_bytes >= 0, "lag_cap_bytes", self.lag_cap_bytes, "0 or more")

"""The replication manager as the handover manager sees it: an object in the same process with a small interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from handover_manager.events import ChangeGroup, NameExecutors, NameSettings, PublishLogged
from handover_manager.view import ClusterView, Remains
from rhino_core.ids import GroupId
from rhino_pb import common_pb2


class Cluster(Protocol):
    """No method waits. When a method returns, its change is journalled, and the next view shows it."""

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when the next view differs from the last one by more than bytes. It may be called often."""

    def view(self, *, asked_at: float) -> ClusterView:
        """The present workers and groups. `asked_at` is monotonic time."""

    def remains(self, worker_id: str) -> Remains:
        """State that may be on this worker only; empty for an unknown one."""

    def change_group(self, effect: ChangeGroup) -> None:
        """Changes a group. Raises the errors of Change in `replication_manager/protocol/events.py`."""

    def set_draining(self, worker_id: str, draining: bool) -> None:
        """Starts or ends the draining of a worker. Idempotent. Raises UnknownError."""

    def name_settings(self, effect: NameSettings) -> None:
        """Applies the settings of a job. Idempotent. Raises PreconditionError for an unchangeable setting."""

    def name_executors(self, effect: NameExecutors) -> None:
        """Records the hosts of a job's executors. Idempotent."""

    def name_targets(self, targets: Mapping[GroupId, str]) -> None:
        """Records the targets of all handovers in progress, by group. Idempotent."""

    def publish(self, effect: PublishLogged) -> None:
        """Publishes the driver's findings in Spark's commit log. Raises InvalidRequestError for impossible versions."""

    def forget_job(self, job: str, *, dry_run: bool) -> common_pb2.ForgetJobReply:
        """Deletes all state of a job. Idempotent. Raises UnknownError."""

    def is_deleted(self, job: str) -> bool:
        """Whether forget_job has deleted the job."""

    def forget_worker(self, worker_id: str, *, dry_run: bool) -> common_pb2.ForgetWorkerReply:
        """Forgets a worker. Raises UnknownError, and PreconditionError unless the worker has ended."""

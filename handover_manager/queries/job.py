"""One streaming query as the handover manager knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handover_manager.events import Effect, PushLocations
from handover_manager.plan.measurements import Measurements
from handover_manager.plan.work import WorkFigures
from handover_manager.queries.desired_map import DesiredMap
from handover_manager.queries.logged import BatchTimes, LoggedBatch, LoggedBatches
from handover_manager.queries.run import Run, Running
from handover_manager.view import ClusterView, TaskGroup
from rhino_core.ids import StoreVersion, VirtualNode


@dataclass(slots=True)
class Job:
    """A streaming query: its run, its map of desired workers, and its logged batches.

    `location` is the place of the query checkpoint, in canonical spelling. It is empty until a driver has reported it.
    `owner` is the certificate's name of the driver with the right to run it. It is empty while any driver may.
    `temporary`: Spark deletes the checkpoint after the run, so no other run can need the state.
    """

    job: str
    map: DesiredMap
    run: Run = field(default_factory=Run)
    location: str = ""
    owner: str = ""
    temporary: bool = False
    logged: LoggedBatches = field(default_factory=LoggedBatches)
    times: BatchTimes = field(default_factory=BatchTimes)
    measurements: Measurements = field(default_factory=Measurements)
    work: WorkFigures = field(default_factory=WorkFigures)

    @property
    def idle(self) -> bool:
        """Whether no batch runs and the next one will use the present map."""
        return self.run.idle_epoch == self.map.configuration_epoch

    def quiet_s(self, now: float) -> float | None:
        """Seconds since its newest batch, or since the report of its driver. None without a driver."""
        running = self.run.phase
        if not isinstance(running, Running):
            return None
        return now - max(running.since, running.since if self.times.logged_at is None else self.times.logged_at)

    def take_plan(self, task_groups: tuple[TaskGroup, ...]) -> None:
        """Adopts a new plan."""
        self.map.take_plan(task_groups)
        self.logged.keep(self.map.nodes.keys())
        self.work.clear()

    def batch_logged(self, batch_id: int, versions: tuple[StoreVersion, ...], now: float) -> None:
        """Records a logged batch. Intervals under a marker do not count as usual ones."""
        usual_s = self.times.logged(self.run.run_id, batch_id, self.logged.newest_id, now)
        if usual_s is not None:
            self.measurements.intervals_s.append(usual_s)
        self.run.idle_epoch = None
        self.logged.logged(batch_id, versions, self.map.configuration_epoch, self.map.desired)

    def settle(self, batch: LoggedBatch, writers: Mapping[StoreVersion, str]) -> dict[VirtualNode, str]:
        """Records the writers of a logged batch. Returns the actual workers of its virtual nodes."""
        actual = batch.written_by_one(writers, self.map.node_of)
        missed = self.logged.settle(batch, actual)
        self.map.ran(actual, missed)
        return actual

    def push(self, view: ClusterView) -> list[Effect]:
        """Sends the map to the driver, unless the driver has it."""
        running = self.run.phase
        if not isinstance(running, Running):
            return []
        epoch, made = newest = (self.map.configuration_epoch, self.map.locations(view))
        if newest == running.sent:
            return []
        running.sent = newest
        return [PushLocations(running.session, self.job, epoch, made.locations, made.hosts)]

    def push_again(self, view: ClusterView) -> list[Effect]:
        """Sends the map if the driver may have an old one."""
        return self.push(view) if isinstance(self.run.phase, Running) and self.run.phase.sent is None else []

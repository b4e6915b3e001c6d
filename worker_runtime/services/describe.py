"""Statistics of a sidecar, in the form that both services return."""

from __future__ import annotations

from rhino_core.rpc.convert import disk_to_pb, worker_to_pb
from rhino_pb import sidecar_pb2
from worker_runtime.codec import commit_record_to_pb, prepare_record_to_pb, scrub_to_pb
from worker_runtime.protocol.credit import GrantPool
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics, resident_bytes
from worker_runtime.upkeep.scrubber import Scrubber


class Describer:
    def __init__(self, replication: Replication, statistics: Statistics, grants: GrantPool, scrubber: Scrubber) -> None:
        self._replication = replication
        self._statistics = statistics
        self._grants = grants
        self._scrubber = scrubber

    def describe(self, request: sidecar_pb2.DescribeRequest) -> sidecar_pb2.DescribeReply:
        statistics, store = self._statistics, self._replication.store
        disk, disk_message = store.space.state()
        resident, resident_max = resident_bytes()
        prepares = list(statistics.prepares)[-request.prepares_max :] if request.prepares_max else []
        commits = list(statistics.commits)[-request.commits_max :] if request.commits_max else []
        return sidecar_pb2.DescribeReply(
            worker=worker_to_pb(self._replication.me),
            stored_bytes=store.files.stored_bytes(),
            free_bytes=store.disk.free_bytes(),
            resident_bytes=resident,
            resident_bytes_max=resident_max,
            replicated_bytes_out=statistics.sent_bytes,
            replicated_bytes_in=statistics.received_bytes,
            prepares_by_source={source.value: count for source, count in statistics.prepares_by_source.items()},
            prepares=[prepare_record_to_pb(record) for record in prepares],
            commits=[commit_record_to_pb(record) for record in commits],
            granted_bytes=self._grants.granted_bytes,
            memory_limit_bytes=self._grants.limit_bytes,
            scrub=scrub_to_pb(self._scrubber.status()),
            disk=disk_to_pb(disk),
            disk_message=disk_message,
            resumed_bytes=statistics.resumed_bytes,
            linked_bytes=statistics.linked_bytes,
        )

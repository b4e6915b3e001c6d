"""Spans of commits and catch-ups, from the events and effects of the chain machine.

The trace of a commit has a span at each worker, and one of each push, as parent of the next worker's span. Only the
file's name and the two workers are in their ids, so all sidecars of the chain agree on them.
"""

from __future__ import annotations

from rhino_core.ids import Lane
from rhino_core.tracing import Traces
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.keys import FileKey, key_of, lane_of
from worker_runtime.replication import Replication


class CommitTraces:
    """Observes the machine of one sidecar."""

    def __init__(self, replication: Replication, traces: Traces) -> None:
        self._me = replication.me.worker_id
        self._traces = traces
        self._commits: dict[int, str] = {}  # by request, the trace
        self._transfers: dict[int, str] = {}
        replication.subscribe(self.event)
        replication.subscribe_effects(self.effect)

    def event(self, event: ev.Event) -> None:
        match event:
            case ev.CommitRequested(request, entry):
                trace = self._commits[request] = _trace(key_of(entry))
                self._begin(trace, "commit", file=trace, bytes=entry.size_bytes)
            case ev.CommitAbandoned(request):
                self._end(self._commits.pop(request, ""), error="its caller waits no more")
            case ev.BeginReceived(upstream, transfer, entry) if entry.lane is Lane.COMMIT:
                trace = self._transfers[transfer] = _trace(key_of(entry))
                self._begin(trace, "receive", parent=f"{upstream} {self._me}", file=trace, bytes=entry.size_bytes)
            case ev.TransferStored(transfer):
                self._transfers.pop(transfer, None)  # the acknowledgement ends its span
            case ev.TransferFailed(transfer, reason, message):
                self._end(self._transfers.pop(transfer, ""), error=message or (reason.value if reason else "broken"))
            case ev.AckReceived(sender, store, name, member=member) if member.worker_id == sender:
                self._traces.end(_trace(FileKey(store, name)), f"{self._me} {sender}")
            case ev.RefusalReceived(sender, store, name, reason, message=message, member=member):
                if member.worker_id == sender:
                    self._traces.end(
                        _trace(FileKey(store, name)), f"{self._me} {sender}", error=message or reason.value
                    )
            case ev.CatchUpFinished(group, epoch):
                self._traces.end(f"catch-up {group} {epoch}", self._me)

    def effect(self, effect: ev.Effect) -> None:
        match effect:
            case ev.OfferFile(to, entry, lane=Lane.COMMIT):
                trace, to_worker = _trace(key_of(entry)), to.worker_id
                self._begin(trace, "push", key=f"{self._me} {to_worker}", parent=self._me, to=to_worker)
            case ev.SendAck(store=store, name=name, member=member) if member.worker_id == self._me:
                if lane_of(name) is Lane.COMMIT:
                    self._end(_trace(FileKey(store, name)))
            case ev.DiscardTransfer(transfer):
                self._end(self._transfers.pop(transfer, ""))
            case ev.CompleteCommit(request, copies, error=error):
                trace = self._commits.pop(request, "")
                self._traces.end(trace, self._me, error=str(error or ""), copies=copies)
            case ev.StartCatchUp(group, epoch):
                trace = f"catch-up {group} {epoch}"
                self._begin(trace, "catch up", group=str(group), epoch=str(epoch))

    def _begin(self, trace: str, name: str, *, key: str = "", parent: str = "", **facts: str | int) -> None:
        self._traces.begin(trace, key or self._me, name, parent=parent, worker=self._me, **facts)

    def _end(self, trace: str, *, error: str = "") -> None:
        self._traces.end(trace, self._me, error=error)


def _trace(key: FileKey) -> str:
    return f"{key.store}/{key.name}"

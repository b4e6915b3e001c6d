"""A simulated push stream: offers of one worker to another on one lane, in chunks within the receiver's credit.

The real `GrantPool` and `SendWindow` decide how much may be under way (Rhino 4.2.2, phase 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhino_core.ids import FileEntry, Lane
from tests.simulation.disk import Key
from tests.simulation.world import Link
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.credit import SendWindow

if TYPE_CHECKING:
    from tests.simulation.sidecar import Sidecar

CHUNK_BYTES = 16
WINDOW_BYTES = 48
IDLE_S = 0.3
BEHIND_S = 2.0  # of a disk that was slow


def limit_bytes(workers: int) -> int:
    """The limit of one worker over all streams: a bit less than a window for each of them."""
    return 2 * (workers - 1) * WINDOW_BYTES - 2 * CHUNK_BYTES


class Stream:
    """From the moment it is opened at the receiver until it breaks for both."""

    def __init__(self, sender: Sidecar, receiver: Sidecar, lane: Lane) -> None:
        self.open = True
        self.lane = lane
        self._sender, self._receiver, self._world = sender, receiver, sender.world
        self._checkers = sender.cluster.checkers
        self._link = Link(self._world)
        self._granted_bytes = 0
        self._grant, credit = receiver.grants.open()
        self._promise(credit)
        receiver.inbound[self._grant] = self
        self._window = SendWindow()
        self._queue: dict[Key, ev.OfferFile] = {}
        self._sent_at = self._world.now
        self._idle_check_due = False
        self._transfer, self._left_bytes = 0, 0  # under way
        self._accepted: dict[int, FileEntry] = {}
        self._arrived: set[int] = set()  # all their bytes are here, and the machine has not decided
        self._buffered_bytes = 0
        self._disk_free_at = 0.0
        self._link.send(lambda: self._welcome(credit), forward=False)

    # ------------------------------------------------------------ sender

    def _welcome(self, credit_bytes: int) -> None:
        self._window.give(credit_bytes)
        self._sender.handle(ev.PeerConnected(self._receiver.name, self.lane))

    def offer(self, offer: ev.OfferFile) -> None:
        self._queue[offer.entry.store, offer.entry.name] = offer
        self._pump()

    def withdraw(self, key: Key) -> None:
        self._queue.pop(key, None)

    def _pump(self) -> None:
        self._sent_at = self._world.now
        if not self._idle_check_due:
            self._idle_check_due = True
            self._world.after(IDLE_S, self._check_idle)
        while self.open:
            if self._left_bytes == 0 and not self._begin_next():
                return
            size = self._window.take(min(CHUNK_BYTES, self._left_bytes))
            if size == 0:
                return
            self._left_bytes -= size
            self._send_data(self._transfer, size, last=self._left_bytes == 0)

    def _check_idle(self) -> None:
        """A sender that has had nothing to send for IDLE_S gives credit back."""
        if self._world.now < self._sent_at + IDLE_S:
            self._world.at(self._sent_at + IDLE_S, self._check_idle)
            return
        self._idle_check_due = False
        idle = self.open and not self._queue and self._left_bytes == 0
        if idle and (back := self._window.give_back(CHUNK_BYTES)):
            self._link.send(lambda: self._returned(back), forward=True)

    def _begin_next(self) -> bool:
        while self._queue:
            key = next(iter(self._queue))
            offer = self._queue.pop(key)
            if not self._sender.readable(*key):
                continue  # deleted meanwhile, or found to be damaged
            self._transfer, self._left_bytes = next(self._world.numbers), offer.entry.size_bytes
            begin = ev.BeginReceived(self._sender.name, self._transfer, offer.entry, offer.epoch, offer.chain)
            self._send_begin(begin)
            return True
        return False

    def _send_begin(self, begin: ev.BeginReceived) -> None:
        self._link.send(lambda: self._receiver.begin(begin, self), forward=True)

    def _send_data(self, transfer: int, size: int, *, last: bool) -> None:
        self._link.send(lambda: self._data(transfer, size, last=last), forward=True)
        if self._world.chance(self._world.faults.break_link):
            self._world.after(self._world.delay(), self.close)

    def _credit(self, credit_bytes: int) -> None:
        self._window.give(credit_bytes)
        self._pump()

    # ------------------------------------------------------------ receiver

    def accept(self, transfer: int, entry: FileEntry) -> None:
        if transfer in self._arrived:
            self._finish(transfer, entry)
        else:
            self._accepted[transfer] = entry

    def _promise(self, change_bytes: int) -> None:
        self._granted_bytes += change_bytes
        self._checkers.granted(self._receiver.name, change_bytes)

    def _returned(self, credit_bytes: int) -> None:
        self._receiver.grants.returned(self._grant, credit_bytes)
        self._promise(-credit_bytes)
        self._receiver.top_up_starved()

    def give(self, credit_bytes: int) -> None:
        if credit_bytes:
            self._promise(credit_bytes)
            self._link.send(lambda: self._credit(credit_bytes), forward=False)

    def reply(self, event: ev.AckReceived | ev.RefusalReceived) -> None:
        for _ in range(2 if self._world.chance(self._world.faults.repeat_reply) else 1):
            self._link.send(lambda: self._sender.handle(event), forward=False)

    def _data(self, transfer: int, size: int, *, last: bool) -> None:
        """Bytes came in; they are on disk, in order, a moment later."""
        self._receiver.grants.received(self._grant, size)
        self._buffer(size)
        write_s = self._world.delay() + self._receiver.disk.slow_s
        self._disk_free_at = max(self._disk_free_at + self._receiver.disk.slow_s, self._world.now + write_s)
        self._world.at(self._disk_free_at, lambda: self._written(transfer, size, last=last))

    def _buffer(self, change_bytes: int) -> None:
        self._buffered_bytes += change_bytes
        self._checkers.buffered(self._receiver.name, change_bytes)

    def _written(self, transfer: int, size: int, *, last: bool) -> None:
        if not self.open:
            return
        self._buffer(-size)
        self._promise(-size)
        self.give(self._receiver.grants.settled(self._grant, size))
        self._receiver.top_up_starved()
        if last and transfer in self._accepted:
            self._finish(transfer, self._accepted.pop(transfer))
        elif last:
            self._arrived.add(transfer)

    def _finish(self, transfer: int, entry: FileEntry) -> None:
        refused = not self._receiver.disk.takes_files
        if not refused and not self._world.chance(self._world.faults.fail_write):
            self._receiver.store(entry)
            self._receiver.handle(ev.TransferStored(transfer))
            return
        reason = ev.Refusal.STORAGE if refused else self._world.random.choice([ev.Refusal.CHECKSUM, None])
        self._receiver.handle(ev.TransferFailed(transfer, reason, "injected"))
        if reason is None:
            self.close()

    # ------------------------------------------------------------ partitions

    @property
    def ends(self) -> tuple[str, str]:
        return self._sender.name, self._receiver.name

    def hold_back(self, from_: str) -> None:
        self._link.hold_back(forward=from_ == self._sender.name)

    def let_go(self, from_: str) -> None:
        self._link.let_go(forward=from_ == self._sender.name)

    def close_if_held_back(self) -> None:
        if self._link.stalled:
            self.close()

    # ------------------------------------------------------------ end

    def close_if_behind(self) -> None:
        """The disk is quick again, and what came while it was slow would still wait: it is sent anew."""
        if self._disk_free_at > self._world.now + BEHIND_S:
            self.close()

    def close(self) -> None:
        """Breaks: what is queued or under way is gone, and both ends that are up hear of it."""
        if not self.open:
            return
        self.open = self._link.open = False
        if self._receiver.inbound.pop(self._grant, None) is not None:
            self._receiver.grants.close(self._grant)
            self._buffer(-self._buffered_bytes)
            self._promise(-self._granted_bytes)
            self._receiver.top_up_starved()
            for transfer in self._accepted:
                self._receiver.handle(ev.TransferFailed(transfer, None))
            self._receiver.stream_ended(self)
        self._sender.disconnected(self._receiver.name, self.lane)

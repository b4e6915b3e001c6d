"""Files are offered until every member holds them, and upstreams get each ack once."""

from __future__ import annotations

from rhino_core.ids import Epoch, Lane
from tests.worker_runtime.scenario import STORE, changelog, worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.outbox import Outbox
from worker_runtime.protocol.chain.outgoing import DELIVERY, Delivery, Outgoing, Reply
from worker_runtime.protocol.chain.receiving import Upstreams
from worker_runtime.protocol.keys import FileKey

FIRST, SECOND = Epoch(1, 1), Epoch(1, 2)
KEY = FileKey(STORE, changelog(2).name)


def test_who_has_stored_a_file_but_does_not_hold_its_version_is_offered_it_on_a_new_link() -> None:
    """Its word that it holds the version may have been lost with the old one."""
    outbox, b = Outbox(), worker("b")
    outbox.connected("b", Lane.COMMIT)
    outbox.offer(changelog(2), FIRST, (b,))
    out = outbox.get(KEY)
    assert out is not None
    out.acknowledged(b, holds=False)
    outbox.disconnected("b", Lane.COMMIT)
    assert outbox.connected("b", Lane.COMMIT) == [ev.OfferFile(b, changelog(2), FIRST, (), Lane.COMMIT)]


def test_so_is_who_has_it_through_the_first_of_the_chain() -> None:
    outbox, b, c = Outbox(), worker("b"), worker("c")
    outbox.connected("b", Lane.COMMIT)
    outbox.offer(changelog(2), FIRST, (b, c))
    out = outbox.get(KEY)
    assert out is not None
    out.acknowledged(b, holds=True)
    out.acknowledged(c, holds=False)
    outbox.disconnected("b", Lane.COMMIT)
    assert outbox.connected("b", Lane.COMMIT) == [ev.OfferFile(b, changelog(2), FIRST, (c,), Lane.COMMIT)]


def test_so_is_who_was_offered_it_past_the_first_of_the_chain() -> None:
    outbox, b, c = Outbox(), worker("b"), worker("c")
    outbox.connected("c", Lane.COMMIT)
    outbox.offer(changelog(2), FIRST, (b, c))
    out = outbox.get(KEY)
    assert out is not None
    assert outbox.bypass(out, 1.0) == [ev.OfferFile(c, changelog(2), FIRST, (b,), Lane.COMMIT)]
    out.acknowledged(c, holds=False)
    assert outbox.bypass(out, 2.0) == [ev.Connect(b, Lane.COMMIT)]
    outbox.disconnected("c", Lane.COMMIT)
    assert outbox.connected("c", Lane.COMMIT) == [ev.OfferFile(c, changelog(2), FIRST, (), Lane.COMMIT)]


def test_what_was_acknowledged_under_another_epoch_is_sent_to_nobody() -> None:
    """It would count as sent, and the acknowledgement that counts would never be sent."""
    upstreams, c = Upstreams(), worker("c")
    upstreams.add(ev.BeginReceived("a", 1, changelog(2), SECOND, (c,)))
    assert upstreams.acknowledge(KEY, c, holds=True, epoch=FIRST) == []
    (ack,) = upstreams.acknowledge(KEY, c, holds=True, epoch=SECOND)
    assert isinstance(ack, ev.SendAck)
    assert (ack.upstream, ack.epoch, ack.member) == ("a", SECOND, c)
    assert upstreams.acknowledge(KEY, c, holds=True, epoch=SECOND) == [], "once"


def test_every_reply_is_possible_in_every_state() -> None:
    assert DELIVERY.rows.keys() == {(delivery, reply) for delivery in Delivery for reply in Reply}


def test_a_member_that_refuses_what_it_has_acknowledged_counts_and_is_offered_the_file_again() -> None:
    b, c = worker("b"), worker("c")
    out = Outgoing(changelog(2), FIRST, (b, c), offered={"b"})
    out.acknowledged(b, holds=True)
    out.acknowledged(c, holds=True)
    assert out.done()
    out.refused("b")
    assert (out.done(), out.pending_directly(), len(out.holders())) == (True, [b], 2)
    out.acknowledged(b, holds=False)
    assert (out.pending(), out.delivery(b)) == ([], Delivery.HELD)


def test_a_member_that_refuses_what_it_has_stored_starts_again() -> None:
    b = worker("b")
    out = Outgoing(changelog(2), FIRST, (b,), offered={"b"})
    out.acknowledged(b, holds=False)
    assert (out.pending(), out.stored_anywhere(), out.done()) == ([], True, False)
    out.refused("b")
    assert (out.pending(), out.stored_anywhere(), out.delivery(b)) == ([b], False, Delivery.MISSING)

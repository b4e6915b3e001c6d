"""The lags that a worker reports of those to which it sends."""

from __future__ import annotations

from rhino_core.ids import Epoch, Lane
from tests.worker_runtime.scenario import GROUP, STORE, changelog, group, sst, worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.machine import ChainMachine
from worker_runtime.protocol.chain.view import REPORT_BYTES, Lag
from worker_runtime.protocol.versions.closure import Catalogue

HUGE = sst(1, size=REPORT_BYTES)


def sender() -> ChainMachine:
    """Owner of a chain a > b > c, with a changelog and a huge data file on their way since second 0."""
    catalogue = Catalogue()
    machine = ChainMachine(worker("a"), catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, "abc", required=2)), now=0.0)
    machine.handle(ev.PeerConnected("b", Lane.COMMIT), now=0.0)
    for entry in (HUGE, changelog(1)):
        catalogue.add(entry)
    machine.handle(ev.FileStored(HUGE, written=True), now=0.0)
    machine.handle(ev.CommitRequested(1, changelog(1), patience_s=60.0), now=0.0)
    machine.view.lags(0.0)
    return machine


def ack(machine: ChainMachine, name: str, file: str, *, holds: bool) -> None:
    machine.handle(ev.AckReceived("b", STORE, file, Epoch(1, 1), worker(name), holds), now=0.0)


def test_the_next_in_the_chain_is_behind_by_bytes_and_by_the_age_of_a_commit() -> None:
    machine = sender()
    assert machine.view.lags(7.0) == (Lag(GROUP, "b", HUGE.size_bytes + changelog(1).size_bytes, 7.0),)
    ack(machine, "b", changelog(1).name, holds=True)
    assert machine.view.lags(8.0) == (Lag(GROUP, "b", HUGE.size_bytes, 0.0),), "a data file takes its time"


def test_who_has_the_file_but_not_yet_the_version_does_not_lag() -> None:
    """The rest of the version may be below the floor and never come."""
    machine = sender()
    ack(machine, "b", HUGE.name, holds=True)
    ack(machine, "b", changelog(1).name, holds=False)
    assert machine.view.lags(7.0) == ()


def test_an_offer_under_a_new_epoch_is_no_new_debt() -> None:
    machine = sender()
    machine.handle(ev.GroupAdopted(group(2, "abc", required=2)), now=5.0)
    assert [lag.oldest_s for lag in machine.view.lags(7.0)] == [7.0]
    machine.handle(ev.GroupAdopted(group(3, "acb", required=2)), now=8.0)
    assert [(lag.to, lag.oldest_s) for lag in machine.view.lags(8.0)] == [("c", 0.0)]

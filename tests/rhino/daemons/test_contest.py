"""The thread of a leading manager, with witnesses in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from rhino.daemons.contest import Contest
from rhino.daemons.witness_links import Identified, WitnessLinks
from rhino_core.errors import UnavailableError
from rhino_core.witnesses.acceptor import Acceptor, Reply, Stored
from rhino_core.witnesses.messages import Answer, Promise, Request

LEASE_S = 3.0  # a leader stops if its thread gets no processor for half of it


class Witnesses:
    """Replace the connections, and answer at once."""

    def __init__(self) -> None:
        self._witnesses = {name: Acceptor(name, Stored()) for name in "abc"}
        self.addresses = {f"{name}:7461": name for name in "abc"}

    async def identify(self) -> dict[str, Identified]:
        return {address: Identified(name, self._witnesses[name].cluster) for address, name in self.addresses.items()}

    def send(self, witness: str, request: Request, answered: Callable[[Answer], None]) -> None:
        for effect in self._witnesses[witness].handle(request, now=0.0):
            if isinstance(effect, Reply):
                answered(effect.answer)

    def elect(self, generation: int) -> None:
        """All of them promise the journal to another manager."""
        for witness in self._witnesses.values():
            witness.handle(Promise(witness.cluster, generation, "other"), now=0.0)

    def close(self) -> None:
        pass


@pytest.fixture
def witnesses() -> Witnesses:
    return Witnesses()


@pytest.fixture
def contest(witnesses: Witnesses) -> Iterator[Contest]:
    made = Contest(cast("WitnessLinks", witnesses), LEASE_S, bootstrap=True)
    made.start()
    yield made
    made.close()


def test_each_write_tells_why_this_manager_no_longer_leads(witnesses: Witnesses, contest: Contest) -> None:
    """A write can also come while the thread ends. The process ends with the error of its first failed write."""
    generation = contest.lead.result(60).generation

    def write(writer: int) -> None:
        while True:
            contest.put({f"key {writer}": b"value"})

    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(write, writer) for writer in range(8)]
        witnesses.elect(generation + 1)
        errors = [writer.exception(60) for writer in writers]
    with pytest.raises(UnavailableError, match="no longer leads"):
        contest.over.result(60)
    with pytest.raises(UnavailableError) as late:
        contest.put({})
    reason = f"this manager no longer leads: another manager has generation {generation + 1}, this one {generation}"
    assert {str(error) for error in (*errors, late.value)} == {reason}

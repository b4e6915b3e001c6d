"""The journal of a manager on witnesses, in the place of one on its disk."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rhino.daemons.contest import Contest
from rhino.daemons.witness_links import WitnessLinks
from rhino_core.errors import RhinoError
from rhino_core.journal import GENERATION, SETTLED, Journal
from rhino_core.security.transport import Transport
from rhino_core.settings import ManagerSettings, addresses_of

PART = 100  # entries of one message to the witnesses, of some kilobytes each


class WitnessedJournal(Journal):
    """The journal of the manager that leads. It has all values in memory. A write returns when a majority has it.

    The generation is that of the election, or one above the highest journalled one. No other leader has the same: it is
    journalled before it is used, and the next leader reads it.
    """

    def __init__(self, contest: Contest, generation: int, values: dict[str, bytes]) -> None:
        """`values`: of the elected leader. Raises UnavailableError if another manager has taken over."""
        self._contest = contest
        self._values = {key: _read(stored) for key, stored in values.items()}
        self.failure = ""
        self.fresh = SETTLED not in self._values
        self.generation = max(generation, int(self._values.get(GENERATION, 0)) + 1)
        self._write({GENERATION: self.generation})

    @property
    def silent_witnesses(self) -> tuple[str, ...]:
        return self._contest.silent

    def _write(self, values: Mapping[str, Any], gone: Iterable[str] = ()) -> None:
        stored: dict[str, bytes | None] = {key: _stored(value) for key, value in values.items()}
        try:
            self._contest.put(stored | dict.fromkeys(gone))
        except RhinoError as error:
            self.failure = str(error)
            raise
        self._values.update(values)
        for key in gone:
            self._values.pop(key, None)

    def _get(self, key: str) -> Any:
        return self._values.get(key)

    def _scan(self, start: str) -> Iterator[tuple[str, Any]]:
        return ((key, self._values[key]) for key in sorted(self._values) if key.startswith(start))

    def take_over(self, former: Journal) -> None:
        """Copies the journal of a manager that had it on its disk. If it breaks off, the journal stays `fresh`."""
        entries = iter(former.items())
        while part := dict(itertools.islice(entries, PART)):
            self.write(part, generation=former.generation)
        if not former.fresh:
            self.settle()
            self.fresh = False

    async def until_over(self) -> None:
        """Raises UnavailableError as soon as another manager may lead: this process has to end then."""
        await asyncio.wrap_future(self._contest.over)

    def close(self) -> None:
        self._contest.close()


def _stored(value: Any) -> bytes:
    """A text, a number or bytes, with a byte in front that tells them apart."""
    return b"b" + value if isinstance(value, bytes) else b"j" + json.dumps(value).encode()


def _read(stored: bytes) -> Any:
    return stored[1:] if stored[:1] == b"b" else json.loads(stored[1:])


async def led_journal(settings: ManagerSettings, transport: Transport) -> WitnessedJournal:
    """Waits as a standby until this manager leads. Raises like `Contest`."""
    timeout_s = max(settings.witness_lease_s / 2, 1.0)  # of a call: longer than a leader waits
    links = WitnessLinks(addresses_of(settings.witnesses), transport, timeout_s)
    contest = Contest(links, settings.witness_lease_s, bootstrap=settings.bootstrap)
    contest.start()
    try:
        lead = await asyncio.wrap_future(contest.lead)
        return WitnessedJournal(contest, lead.generation, lead.values)
    except BaseException:
        await asyncio.to_thread(contest.close)
        raise

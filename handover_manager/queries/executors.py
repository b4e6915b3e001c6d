"""Hosts of the executors of each driver's application, as the driver reports them."""

from __future__ import annotations

EXECUTORS_MAX = 10_000  # per session; further ones are ignored, which only makes placement less good


class Executors:
    """Executors by session. A driver that connects again reports all its executors."""

    def __init__(self) -> None:
        self._of: dict[int, dict[str, str]] = {}

    def changed(self, session: int, executor_id: str, host: str, *, removed: bool) -> bool:
        """Adds or removes an executor. Returns whether the set of hosts has changed."""
        before, known = self.hosts(session), self._of.setdefault(session, {})
        if removed or not host:
            known.pop(executor_id, None)
        elif executor_id in known or len(known) < EXECUTORS_MAX:
            known[executor_id] = host
        return self.hosts(session) != before

    def hosts(self, session: int) -> frozenset[str]:
        return frozenset(self._of.get(session, {}).values())

    def closed(self, session: int) -> None:
        self._of.pop(session, None)

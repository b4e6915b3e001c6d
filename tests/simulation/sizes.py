"""How much the machines of a cluster remember: the length of every container that can be reached from them."""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

CONTAINERS = (dict, list, set, frozenset, tuple, deque)
CORES = ("worker_runtime", "replication_manager", "handover_manager", "rhino")


def sizes(machines: Iterable[object]) -> Counter[str]:
    """Total length by place, such as `Outbox._files`, over all objects of the cores; what is nested counts as its
    holder's place with `[]`. Each object counts once."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [(type(machine).__name__, machine) for machine in machines]
    while todo:
        place, value = todo.pop()
        if id(value) in seen or isinstance(value, str | bytes | int | float | enum.Enum | type):
            continue
        seen.add(id(value))
        if isinstance(value, CONTAINERS) and not hasattr(value, "_fields"):  # names and numbers are not looked into
            found[place] += len(value)
            inner = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
            todo += [(f"{place}[]", one) for one in inner]
        elif type(value).__module__.startswith(CORES):
            todo += [(f"{type(value).__name__}.{name}", held) for name, held in _held(value)]
    return found


def _held(value: object) -> list[tuple[str, Any]]:
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    names = [*getattr(value, "__dict__", {}), *slots]
    return [(name, getattr(value, name)) for name in dict.fromkeys(names) if hasattr(value, name)]

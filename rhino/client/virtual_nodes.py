"""Names of virtual nodes as people write them: single ones, and ranges of partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rhino_core.errors import InvalidRequestError

RANGE_MAX = 100_000
_ITEM = re.compile(r"(\d+)/(\d+)(?:-(\d+))?")


def parse_virtual_nodes(items: Iterable[str]) -> tuple[str, ...]:
    """`["0/1", "0/4-6"]` -> `("0/1", "0/4", "0/5", "0/6")`. Raises InvalidRequestError with the malformed item."""
    nodes: list[str] = []
    for item in items:
        match = _ITEM.fullmatch(item)
        if match is None:
            raise InvalidRequestError(
                f"virtual node {item!r}: must be <task group>/<partition> or <task group>/<first>-<last>, each an "
                "argument of its own; `rhino status` lists the virtual nodes"
            )
        first, last = int(match[2]), int(match[3] or match[2])
        if last < first or last - first > RANGE_MAX:
            raise InvalidRequestError(f"virtual nodes {item!r}: the range must rise, by {RANGE_MAX} at most")
        nodes.extend(f"{match[1]}/{partition}" for partition in range(first, last + 1))
    return tuple(dict.fromkeys(nodes))


def as_ranges(names: Iterable[str]) -> list[str]:
    """The reverse of `parse_virtual_nodes`: `["0/4", "0/1", "0/5", "0/6"]` -> `["0/1", "0/4-6"]`."""
    found: list[list[int]] = []  # task group, first and last partition
    for group, partition in sorted((int(name.partition("/")[0]), int(name.partition("/")[2])) for name in names):
        if found and found[-1][0] == group and found[-1][2] == partition - 1:
            found[-1][2] = partition
        else:
            found.append([group, partition, partition])
    return [f"{group}/{first}" + (f"-{last}" if last > first else "") for group, first, last in found]

"""Runs a target on examples that Hypothesis makes from those of the corpus."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from rhino_core.errors import RhinoError
from tests.fuzz.fact_targets import PART_TARGETS, SEPARATOR
from tests.fuzz.targets import JSON_TARGETS, TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"
EXAMPLE_S_MAX = 10.0  # on a busy machine; the usual time is a millisecond
HANG_S = 120  # then the process ends, with its stack
EDITS_MAX = 8
PLACE = st.floats(0, 1, exclude_max=True)
JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=5,
)
Edit = tuple[float, int, bytes]


def corpus(name: str) -> list[bytes]:
    """The committed examples of a target: whole ones, and former findings."""
    return [file.read_bytes() for file in sorted((CORPUS / name).iterdir())]


def edited(example: bytes, edits: list[Edit]) -> bytes:
    """Replaces, inserts, removes or repeats bytes at places, which are fractions of the length."""
    data = bytearray(example)
    for place, kind, more in edits:
        at = int(place * len(data))
        match kind:
            case 0:
                data[at : at + len(more)] = more
            case 1:
                data[at:at] = more
            case 2:
                del data[at : at + len(more)]
            case _:
                data[at:at] = data[max(0, at - 16 * len(more)) : at]
    return bytes(data)


def replaced(example: bytes, place: float, value: object) -> bytes:
    """Puts the value in the place of one in the example, which is JSON. `place`: a fraction of the number of values."""
    whole = [json.loads(example)]  # in a list, which has a place for it
    places = [(part, key) for part in _parts(whole) for key in (part if isinstance(part, dict) else range(len(part)))]
    part, key = places[int(place * len(places))]
    part[key] = value
    return json.dumps(whole[0]).encode()


def replaced_part(example: bytes, which: float, place: float, value: object) -> bytes:
    """As `replaced`, in one of the files of an example, also behind a first line with a version."""
    parts = example.split(SEPARATOR)
    at = int(which * len(parts))
    head, line, body = parts[at].rpartition(b"\n")
    with contextlib.suppress(ValueError):
        parts[at] = head + line + replaced(body, place, value)
    return SEPARATOR.join(parts)


def _parts(value: Any) -> Iterator[Any]:
    """All dictionaries and lists in the value, with itself."""
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _parts(inner)


def examples(name: str) -> st.SearchStrategy[bytes]:
    if name in JSON_TARGETS:
        return st.one_of(_edited(name), st.builds(replaced, st.sampled_from(corpus(name)), PLACE, JSON_VALUE))
    if name in PART_TARGETS:
        part = st.builds(replaced_part, st.sampled_from(corpus(name)), PLACE, PLACE, JSON_VALUE)
        return st.one_of(part, part, _edited(name))
    return _edited(name)


def _edited(name: str) -> st.SearchStrategy[bytes]:
    edit: Any = st.tuples(PLACE, st.integers(0, 3), st.binary(min_size=1, max_size=8))
    near = st.builds(edited, st.sampled_from(corpus(name)), st.lists(edit, max_size=EDITS_MAX))
    return near | near | near | st.binary(max_size=4000)


def run_one(target: Target, data: bytes) -> None:
    """Raises what the target raises, unless it is a refusal, and AssertionError if it takes too long."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rhino-fuzz-") as folder, contextlib.suppress(RhinoError):
        target(data, Path(folder))
    took = time.monotonic() - begun
    assert took < EXAMPLE_S_MAX, f"{len(data)} bytes took {took:.1f} s"


def run(name: str, times: int, number: int) -> None:
    """Runs so many examples. `number`: another one gives other examples. Raises what is found, with its example."""
    target = TARGETS[name]

    @seed(number)
    @settings(
        max_examples=times,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(examples(name))
    def each(data: bytes) -> None:
        run_one(target, data)

    faulthandler.dump_traceback_later(HANG_S + times, exit=True)
    try:
        each()
    finally:
        faulthandler.cancel_dump_traceback_later()


def memory_bytes() -> int:
    """Most memory that this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

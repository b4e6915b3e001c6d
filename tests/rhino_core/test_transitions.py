from __future__ import annotations

import enum

import pytest

from rhino_core.errors import LocalProtocolError
from rhino_core.transitions import TransitionTable


class Light(enum.Enum):
    RED = "red"
    GREEN = "green"


class Sign(enum.Enum):
    GO = "all_clear"
    STOP = "stop"


TABLE = TransitionTable(Light.RED, {(Light.RED, Sign.GO): Light.GREEN, (Light.GREEN, Sign.STOP): Light.RED})


def test_a_transition_that_is_not_in_the_table_is_an_error() -> None:
    assert TABLE.next(Light.RED, Sign.GO) is Light.GREEN
    with pytest.raises(LocalProtocolError, match="stop is impossible in state red"):
        TABLE.next(Light.RED, Sign.STOP)


def test_the_diagram_has_every_transition() -> None:
    assert TABLE.diagram().splitlines() == [
        "stateDiagram-v2",
        "    [*] --> red",
        "    red --> green: all clear",
        "    green --> red: stop",
    ]

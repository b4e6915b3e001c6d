from __future__ import annotations

import pytest

from rhino.client.virtual_nodes import as_ranges, parse_virtual_nodes
from rhino_core.errors import InvalidRequestError


def test_virtual_nodes_and_ranges() -> None:
    assert parse_virtual_nodes(["0/1", "0/4-6", "1/0", "0/5"]) == ("0/1", "0/4", "0/5", "0/6", "1/0")


@pytest.mark.parametrize("text", ["", "5", "0/", "0/5-2", "0/1,0/2", "0/1;0/2", "a/b"])
def test_malformed_virtual_nodes_are_named(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="virtual node"):
        parse_virtual_nodes([text])


def test_ranges_are_the_shortest_form_of_names_in_order() -> None:
    names = ["0/10", "0/4", "1/0", "0/1", "0/5", "0/6", "0/9"]
    assert as_ranges(names) == ["0/1", "0/4-6", "0/9-10", "1/0"]
    assert sorted(parse_virtual_nodes(as_ranges(names))) == sorted(names)
    assert as_ranges([]) == []

"""Messages are read from JSON as protobuf's own parser reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino_core.rpc import plain
from rhino_core.rpc.plain import message_of, value_of
from rhino_pb import common_pb2 as pb

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WORKERS = st.builds(pb.Worker, worker_id=NAMES, incarnation=NAMES, host=NAMES, peer_address=NAMES, zone=NAMES)
GROUPS = st.builds(
    pb.ReplicaGroup,
    group=st.builds(pb.GroupId, job=NAMES, operator=st.integers(0, (1 << 63) - 1), partition=st.integers(0, 1 << 30)),
    epoch=st.builds(pb.Epoch, generation=st.integers(0, (1 << 64) - 1), counter=st.integers(0, 1 << 52)),
    members=st.lists(st.builds(pb.Member, worker=WORKERS, whole=st.booleans()), max_size=3),
    min_copies=st.integers(0, 5),
    settings=st.builds(
        pb.JobSettings, replication_factor_set=st.booleans(), durability=st.sampled_from(pb.Durability.values())
    ),
)
KEYS = ["group", "epoch", "members", "minCopies", "min_copies", "job", "operator", "whole", "later"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NAMES | st.integers().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=8,
)
REFUSALS = (ParseError, AttributeError, TypeError, KeyError, ValueError)


def read_slowly(value: Any) -> pb.ReplicaGroup:
    message = pb.ReplicaGroup()
    ParseDict(value, message, ignore_unknown_fields=True)
    return message


@settings(deadline=None)
@given(message=GROUPS)
def test_what_this_version_writes_is_read_without_the_slow_parser(message: pb.ReplicaGroup) -> None:
    value = json.loads(json.dumps(MessageToDict(message)))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("protobuf's parser was asked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "ParseDict", never)
        assert message_of(pb.ReplicaGroup, value) == message


@settings(deadline=None)
@given(value=st.dictionaries(st.sampled_from(KEYS), JSON))
def test_anything_else_is_read_or_refused_as_protobuf_does(value: Any) -> None:
    try:
        expected: object = read_slowly(value)
    except REFUSALS as error:
        expected = type(error)
    try:
        found: object = message_of(pb.ReplicaGroup, value)
    except REFUSALS as error:
        found = type(error)
    assert found == expected


@pytest.mark.parametrize(
    "value",
    [
        {"group": {"job": "j", "operator": 3}, "later": {"a": 1}},
        {"group": {"job": "j", "operator": "3"}, "min_copies": 2},
        {"group": {"job": "j", "operator": "-3"}},
        {"settings": {"durability": 2}},
        {"minCopies": 1.0},
    ],
)
def test_forms_of_others_are_read_too(value: Any) -> None:
    assert message_of(pb.ReplicaGroup, value) == read_slowly(value)


@settings(deadline=None)
@given(message=GROUPS)
def test_a_message_becomes_the_value_that_protobuf_makes_of_it(message: pb.ReplicaGroup) -> None:
    assert value_of(message) == MessageToDict(message)


@pytest.mark.parametrize(
    "message",
    [
        pb.StoreVersion(store=pb.StoreId(job="j", store="default"), version=pb.Version(version=7, checkpoint_id="x")),
        pb.StoreVersion(version=pb.Version()),
        pb.JobSettings(durability=9),  # type: ignore[arg-type]  # of a newer version
        pb.FileEntry(name="a", references=["b", "c"], version=pb.Version(version=1 << 60)),
        pb.ScrubStatus(number=1),
    ],
)
def test_other_messages_do_so_too(message: Any) -> None:
    assert value_of(message) == MessageToDict(message)

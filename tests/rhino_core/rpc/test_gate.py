"""The gate: a rule for every field of every message, and what the rules let through."""

from __future__ import annotations

import math
import time

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from rhino_core import ids
from rhino_core.errors import InvalidRequestError, RemoteProtocolError
from rhino_core.rpc import gate, rules
from rhino_pb import archive_pb2, common_pb2, handover_pb2, peer_pb2, replication_pb2, sidecar_pb2
from tests.rhino_core import messages
from tests.rhino_core.messages import HOSTILE_NAMES, dotted, rule_of, sample, with_value

ALL = [(d, path) for d in messages.messages() for path in messages.paths(d)]
STRINGS = [(d, path) for d, path in ALL if path[-1].type == FieldDescriptor.TYPE_STRING]
NAMES = [(d, path) for d, path in STRINGS if isinstance(rule_of(path[-1]), rules.Name)]
TEXTS = [(d, path) for d, path in STRINGS if isinstance(rule_of(path[-1]), rules.Text)]
DOUBLES = [(d, path) for d, path in ALL if path[-1].type == FieldDescriptor.TYPE_DOUBLE]
FREE = ("inbox_name", "location", "archive", "url", "path", "basis", "key")  # file names and paths that others choose
NUMBERS = [
    (d, path) for d, path in ALL if isinstance(rule_of(path[-1]), rules.Number) and path[-1].type not in (8, 14, 1)
]


def refused(message: Message) -> bool:
    try:
        gate.check(message)
    except InvalidRequestError:
        return True
    return False


def test_every_field_of_every_message_has_a_rule() -> None:
    without = [field.full_name for d in messages.messages() for field in d.fields if not gate.has_rule(field)]
    assert not without, "decide in rhino_core/rpc/rules.py what they may be"


def test_no_rule_is_for_a_field_that_does_not_exist() -> None:
    fields = [field for d in messages.messages() for field in d.fields]
    known = {field.name for field in fields} | {f"{field.containing_type.name}.{field.name}" for field in fields}
    assert set(rules.FIELDS) <= known
    assert set(rules.LENGTHS) | rules.MAY_BE_ABSENT <= known


@pytest.mark.parametrize("path", ["", "../x", "/x", "a//b", ".", "a/..", "a/\x00"])
def test_a_file_of_a_checkpoint_lies_in_it(path: str) -> None:
    gate.check(archive_pb2.CheckpointFile(path="state/0/_metadata/v2/0"))
    assert refused(archive_pb2.CheckpointFile(path=path))


@pytest.mark.parametrize("descriptor", messages.messages(), ids=lambda d: str(d.name))
def test_harmless_messages_pass(descriptor: object) -> None:
    gate.check(sample(descriptor))


def test_hostile_names_are_refused_wherever_they_are() -> None:
    assert len(NAMES) > 300
    for descriptor, path in NAMES:
        for value in HOSTILE_NAMES:
            if path[-1].name in FREE and value not in ("a\x00b", "a\nb", "\x1b[2Jx"):
                continue
            assert refused(with_value(descriptor, path, value)), f"{descriptor.name}.{dotted(path)} = {value!r}"


@pytest.mark.parametrize("name", [".", ".."])
def test_no_name_stands_for_another_folder(name: str) -> None:
    for descriptor, path in NAMES:
        if path[-1].name == "location":
            continue
        with pytest.raises(InvalidRequestError):
            gate.check(with_value(descriptor, path, name))


def test_texts_for_people_are_cut_and_made_printable_rather_than_refused() -> None:
    """A user's query may have any name."""
    for descriptor, path in TEXTS:
        message = with_value(descriptor, path, "title\x1b]0;x\x07 \u202e" + "x" * 100_000)
        gate.check(message)
        assert message.ByteSize() < 40_000, dotted(path)
        assert b"\x1b" not in message.SerializeToString(), dotted(path)
    ended = handover_pb2.QueryEnded(job="q", error="first line\n\tsecond")
    gate.check(ended)
    assert ended.error == "first line\n\tsecond"
    started = handover_pb2.QueryStarted(job="q", name="orders [/eu] été 🦏")
    gate.check(started)
    assert started.name == "orders [/eu] été 🦏"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e300])
def test_no_double_is_beyond_reason(value: float) -> None:
    assert len(DOUBLES) > 15
    for descriptor, path in DOUBLES:
        with pytest.raises(InvalidRequestError, match=path[-1].name):
            gate.check(with_value(descriptor, path, value))


def test_no_whole_number_is_beyond_its_range() -> None:
    unsigned = (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64)
    sizes = {1: 32, 3: 63, 4: 64, 5: 31, 13: 32}
    for descriptor, path in NUMBERS:
        rule, last = rule_of(path[-1]), path[-1]
        assert isinstance(rule, rules.Number)
        most = 2 ** sizes[last.type] - 1
        if most > rule.most:
            with pytest.raises(InvalidRequestError, match=last.name):
                gate.check(with_value(descriptor, path, most))
        if last.type not in unsigned:
            with pytest.raises(InvalidRequestError, match=last.name):
                gate.check(with_value(descriptor, path, -2))


def test_epochs_have_a_ceiling_that_a_manager_can_always_exceed() -> None:
    now_ms = int(time.time() * 1000)
    gate.check(common_pb2.Epoch(generation=now_ms + 1000, counter=ids.COUNTER_MAX))
    for epoch in (
        common_pb2.Epoch(generation=2**64 - 1),
        common_pb2.Epoch(generation=now_ms * 2),
        common_pb2.Epoch(generation=1, counter=2**64 - 1),
    ):
        with pytest.raises(InvalidRequestError, match="Epoch"):
            gate.check(
                replication_pb2.RegisterRequest(worker=sample(common_pb2.Worker.DESCRIPTOR), highest_epoch=epoch)
            )


def test_what_is_absent_is_refused_where_it_is_needed() -> None:
    for message in (
        replication_pb2.ResolveGroupRequest(worker_id="w"),
        replication_pb2.RegisterRequest(),
        sidecar_pb2.AddRequest(session_id="s", name="SSTs/1-a.sst", inbox_name="x"),
        peer_pb2.PushFrame(begin=peer_pb2.PushBegin(transfer=1)),
        peer_pb2.PushReply(ack=peer_pb2.PushAck(name="1_a.changelog")),
    ):
        with pytest.raises(InvalidRequestError):
            gate.check(message)
    gate.check(peer_pb2.PushFrame(data=peer_pb2.PushData(transfer=1)))
    gate.check(sidecar_pb2.StatReply(exists=False))


def test_lists_are_bounded() -> None:
    strategy = handover_pb2.ScaleInIntent(workers=["w"] * (rules.LENGTH + 1))
    with pytest.raises(InvalidRequestError, match=r"workers.*10001 entries"):
        gate.check(strategy)
    group = common_pb2.GroupId(job="q")
    reports = [replication_pb2.GroupReport(group=group)] * (rules.LENGTH + 1)
    gate.check(replication_pb2.RegisterRequest(worker=sample(common_pb2.Worker.DESCRIPTOR), groups=reports))
    job = replication_pb2.GroupUpdate.DESCRIPTOR.fields_by_name["forgotten"].message_type
    gate.check(replication_pb2.GroupUpdate(forgotten=[sample(job)] * 100_000))


def test_a_refusal_names_field_and_value_and_is_short() -> None:
    with pytest.raises(
        InvalidRequestError, match=r"GroupId\.job = '/x.*\(5000001 characters\): must be a query id"
    ) as e:
        gate.check(common_pb2.GroupId(job="/" + "x" * 5_000_000))
    assert len(str(e.value)) < 400
    with pytest.raises(RemoteProtocolError, match=r"inventory of q from w: .*GroupId\.job"):
        gate.checked(common_pb2.GroupId(job=".."), "inventory of q from w")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "KNOWN_MAX", 10)
    name = rules.Name(ids.is_safe, "a name", may_be_empty=True)
    for number in range(1000):
        name.learn(f"n{number}", "field")
    assert len(name.good) <= 11
    assert "" in name.good


def test_long_values_are_not_remembered() -> None:
    started = handover_pb2.QueryStarted(job="q", location="/" + "x" * 4000)
    gate.check(started)
    rule = rules.FIELDS["location"]
    assert isinstance(rule, rules.Name)
    assert started.location not in rule.good


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\0b", "x" * 256])
def test_an_inbox_name_is_a_file_of_the_inbox(name: str) -> None:
    request = sample(sidecar_pb2.AddRequest.DESCRIPTOR)
    request.inbox_name = name
    assert refused(request)

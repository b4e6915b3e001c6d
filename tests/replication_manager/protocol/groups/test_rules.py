"""Which members stay: pure rules, for cases that whole managers reach seldom."""

from __future__ import annotations

from replication_manager.protocol.groups import rules
from rhino_core.ids import NO_EPOCH, JobSettings, Member, ReplicaGroup
from rhino_core.planning.spread import Place
from tests.replication_manager.protocol.harness import GROUP, worker


def chain(text: str) -> rules.Members:
    """As "ab?c": the owner first, and "?" after a member that is not whole."""
    return tuple(Member(worker(name), text[at + 1 : at + 2] != "?") for at, name in enumerate(text) if name != "?")


def names(members: rules.Members) -> str:
    return "".join(m.worker.worker_id for m in members)


def owned_by(members: str, owner: str, draining: str) -> str:
    group = ReplicaGroup(GROUP, NO_EPOCH, chain(members), 1, JobSettings(1))
    place = Place("host", "", "")
    return names(rules.owned_by(group, owner, lambda of: True, draining, lambda of: place))


def test_a_draining_member_stays_while_one_of_the_others_is_absent() -> None:
    members = chain("abc")
    assert rules.without_draining(JobSettings(1), members, "b", "", lambda of: of.worker_id != "c") == members
    assert names(rules.without_draining(JobSettings(1), members, "b", "", lambda of: True)) == "ac"


def test_a_draining_source_stays_and_is_no_copy_for_another_draining_member() -> None:
    """Simulator, seed 2503 (factor 1)."""
    members = chain("abc")
    assert rules.without_draining(JobSettings(1), members, "bc", "c", lambda of: True) == members
    assert names(rules.without_draining(JobSettings(1), chain("abcd"), "bc", "c", lambda of: True)) == "acd"


def test_a_draining_owner_is_one_more_than_the_copies_that_stay() -> None:
    assert owned_by("abcd", "a", draining="a") == "abc"
    assert owned_by("abcd", "a", draining="") == "ab"
    assert owned_by("abcd", "b", draining="a") == "bca", "the former owner leaves later"

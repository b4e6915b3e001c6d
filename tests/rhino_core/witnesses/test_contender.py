from __future__ import annotations

import pytest

from rhino_core.errors import ConflictError, InvalidRequestError, UnavailableError
from rhino_core.witnesses import events as ev
from rhino_core.witnesses import log
from rhino_core.witnesses.messages import Fetched, Position, Promise, Promised, Record
from tests.rhino_core.witnesses.group import LEASE_S, Group, led_group


def test_a_new_journal_begins_in_the_first_generation() -> None:
    group = Group()
    group.start("m", first_generation=7)
    group.wait(2 * LEASE_S)
    first = Record(7, {}, ("a", "b", "c"))
    assert group.took("m", ev.Elected, ev.Committed, ev.Leads) == [
        ev.Elected(7, Position(0, 0)),
        ev.Committed(1, (first,)),
        ev.Leads(7),
    ]


def test_no_journal_begins_without_a_first_generation() -> None:
    group = Group()
    group.start("m")
    group.wait(2 * LEASE_S)
    assert ev.JournalEmpty() in group.took("m", ev.JournalEmpty, ev.Elected)


def test_a_write_is_done_when_a_majority_has_it() -> None:
    group = led_group()
    group.down = {"c"}
    group.handle("m", ev.Put(1, {"k": b"v"}))
    assert group.took("m", ev.PutDone) == [ev.PutDone(1)]
    group.down = {"b", "c"}
    group.handle("m", ev.Put(2, {"k": b"w"}))
    assert group.took("m", ev.PutDone) == []
    group.down = {"c"}
    group.wait(LEASE_S / 4)
    assert group.took("m", ev.PutDone) == [ev.PutDone(2)]


def test_writes_of_meanwhile_go_together() -> None:
    group = led_group()
    leader = group.managers["m"]
    sent = [effect for number in (1, 2, 3) for effect in leader.handle(ev.Put(number, {"k": b""}), now=group.now)]
    assert len(sent) == 3  # the first write, to each witness
    answers = [answer for effect in sent if isinstance(effect, ev.Send) for answer in group._answers(effect)]
    more = [effect for answer in answers for effect in leader.handle(answer, now=group.now)]
    assert [len(effect.request.records) for effect in more if isinstance(effect, ev.Send)] == [2, 2, 2]  # type: ignore


def test_only_the_leader_writes() -> None:
    group = led_group()
    group.start("n")
    with pytest.raises(UnavailableError, match="does not lead"):
        group.handle("n", ev.Put(1))


def test_a_leader_without_a_majority_stops_after_half_a_lease() -> None:
    group = led_group()
    group.down = {"a", "b"}
    group.handle("m", ev.Put(1, {"k": b"v"}))
    group.wait(LEASE_S / 2 + 0.01)
    failed, stopped = group.took("m", ev.PutFailed, ev.Stopped)
    assert failed == ev.PutFailed(1)
    assert isinstance(stopped, ev.Stopped)
    assert "no majority of the witnesses a, b, c" in stopped.reason


def test_a_standby_knows_the_journal_and_takes_over_after_a_silence() -> None:
    group = led_group()
    group.start("n")
    group.handle("m", ev.Put(1, {"k": b"v"}))
    group.wait(3 * LEASE_S)
    effects = group.took("n", ev.Elected, ev.Committed)
    records = [one for effect in effects if isinstance(effect, ev.Committed) for one in effect.records]
    assert records == [Record(7, {}, ("a", "b", "c")), Record(7, {"k": b"v"})]
    assert ev.Elected not in map(type, effects)
    group.wait(2 * LEASE_S, "n")
    assert ev.Leads(8) in group.took("n", ev.Leads)


def test_a_standby_with_few_witnesses_does_not_disturb_the_leader() -> None:
    group = led_group()
    group.start("n")
    group.wait(LEASE_S)
    group.down = {"b", "c"}  # for n; nobody hears of m meanwhile
    group.wait(3 * LEASE_S, "n")
    assert group.took("n", ev.Elected) == []


def test_the_next_leader_keeps_an_old_write_that_it_finds() -> None:
    group = led_group()
    group.down = {"b", "c"}
    group.handle("m", ev.Put(1, {"k": b"v"}))
    group.down = {"c"}
    group.start("n")
    group.wait(2 * LEASE_S, "n")
    committed = [one for effect in group.took("n", ev.Committed) for one in effect.records]  # type: ignore[union-attr]
    assert Record(7, {"k": b"v"}) in committed


def test_the_former_leader_stops_at_the_first_refusal() -> None:
    group = led_group()
    group.witnesses["a"].handle(Promise("cluster", 99, "n"), now=group.now)
    group.handle("m", ev.Put(9, {"k": b"v"}))
    assert group.took("m", ev.PutDone, ev.PutFailed) == [ev.PutFailed(9)]


def test_a_witness_with_old_records_gets_a_snapshot() -> None:
    group = led_group(kept=2)
    group.down = {"c"}
    for number in range(10):
        group.handle("m", ev.Put(number, {"k": b"%d" % number}))
    group.down = {"a"}
    group.wait(LEASE_S / 4)
    group.handle("m", ev.Put(10, {"k": b"last"}))
    assert ev.PutDone(10) in group.took("m", ev.PutDone)


def test_witnesses_change_by_one_at_a_time() -> None:
    group = led_group()
    for wrong in ("ade", "abc", "cbad", "abcc"):
        with pytest.raises(InvalidRequestError, match="add one to a, b, c, or remove one, at a time"):
            group.handle("m", ev.Put(1, {}, tuple(wrong)))
    group.handle("m", ev.Put(2, {}, ("a", "b")))
    assert group.took("m", ev.PutDone) == [ev.PutDone(2)]


def test_a_change_waits_for_the_one_before() -> None:
    group = led_group()
    group.down = {"a", "b", "c"}
    group.handle("m", ev.Put(1, {}, ("a", "b", "c", "d")))
    with pytest.raises(ConflictError, match="former change"):
        group.handle("m", ev.Put(2, {}, ("a", "b", "c", "d", "e")))


def test_a_candidate_finds_the_witnesses_of_today_through_those_of_yesterday(monkeypatch: pytest.MonkeyPatch) -> None:
    group = led_group()
    group.witnesses |= Group("de").witnesses
    monkeypatch.setattr(log, "RECORDS_MAX", 1)  # so that the candidate sees each set
    for number, witnesses in enumerate(("abcd", "bcd", "bcde", "cde")):
        group.handle("m", ev.Put(number, {}, tuple(witnesses)))
    assert len(group.took("m", ev.PutDone)) == 4
    group.start("n")
    group.wait(3 * LEASE_S, "n")
    assert group.took("n", ev.Leads) == [ev.Leads(8)]


def _fetched(witness: str, **values: object) -> Fetched:
    """Of a witness whose log ends with two records of generation 3 that are not committed."""
    usual = {"generation": 0, "promised": 3, "activity": 1, "after": 0, "records": (), "committed": 0}
    told = {"last": Position(3, 2), "witnesses": ("a", "b", "c")}
    return Fetched(witness=witness, **(usual | told | values))  # type: ignore[arg-type]


def test_a_candidate_does_not_mix_a_log_with_the_one_that_replaces_it() -> None:
    """Manager `o` is elected in the same generation by b and c, while `n` reads the log of a."""
    candidate = Group().start("n")
    for now in range(int(LEASE_S) + 1):
        effects = [effect for witness in "abc" for effect in candidate.handle(_fetched(witness), now=now)]
    assert any(isinstance(effect, ev.Send) and isinstance(effect.request, Promise) for effect in effects)
    candidate.handle(Promised("a", 4, True, 4, Position(3, 2)), now=now)
    old = Record(3, {"k": b"old"})
    candidate.handle(_fetched("a", generation=4, promised=4, records=(old,)), now=now)
    replaced = _fetched("a", generation=4, promised=4, after=1, committed=1, last=Position(4, 1))
    assert not [effect for effect in candidate.handle(replaced, now=now) if isinstance(effect, ev.Committed)]
    candidate.check_invariants()

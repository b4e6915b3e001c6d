from __future__ import annotations

from rhino_core.witnesses import events as ev
from rhino_core.witnesses.leadership import Identity, Leadership
from rhino_core.witnesses.log import Log
from rhino_core.witnesses.messages import Appended, Position, Record, Snapshot


def test_a_record_of_an_old_generation_counts_only_under_one_of_the_leader() -> None:
    """Figure 8 of Raft: although a majority has the old record, another leader may still take it back."""
    log = Log(Snapshot(Position(1, 1), {}, ("a", "b", "c")), [Record(2), Record(2)])
    leadership = Leadership(Identity("cluster", "m"), 4, log, 6.0)
    leadership.begin((), 0.0)

    def have(matched: int) -> list[ev.Effect]:
        answers = (Appended(witness, 4, 4, matched, 0.0) for witness in "ab")
        effects = [effect for answer in answers for effect in leadership.appended(answer, 0.0)]
        return [effect for effect in effects if not isinstance(effect, ev.Send)]

    assert have(3) == []
    assert have(4) == [ev.Committed(2, (Record(2), Record(2), Record(4))), ev.Leads(4)]

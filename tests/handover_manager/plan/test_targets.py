"""The model of a plan says the same as the view, although only workers near a virtual node are looked at."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from handover_manager.plan.move import lacking_bytes, state_bytes
from handover_manager.plan.situation import Situation
from handover_manager.plan.targets import model_of
from rhino_core.planning.goals import Goals
from rhino_core.planning.state import State
from rhino_model.handovers import groups_of
from rhino_model.intents import Weight
from workloads.adaptation.scene import Cluster, group, node

NAMES = ("w1", "w2", "w3", "w4", "w5")
MEMBERS = st.permutations(NAMES).flatmap(lambda names: st.integers(1, 3).map(lambda count: list(names[:count])))
STORED = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 90), max_size=4)


@settings(deadline=None)
@given(st.lists(st.tuples(MEMBERS, st.sets(st.sampled_from(NAMES)), STORED), min_size=2, max_size=2))
def test_every_worker_lacks_what_the_view_says(groups: list[tuple[list[str], set[str], dict[str, int]]]) -> None:
    cluster, place = Cluster(*NAMES), node("0/0")
    for operator, (members, behind, stored) in enumerate(groups):
        chain = " ".join(f"{name}{'?' if name in behind and name != members[0] else ''}" for name in members)
        cluster.chain(group(operator, 0), chain, stored)
    view, operators = cluster.view, (0, 1)
    owner = groups[0][0][0]
    situation = Situation({place: operators}, {place: owner}, {}, {}, view)
    model = model_of(situation, Weight.BYTES, dict.fromkeys(NAMES, 1000))
    state, seen = State(model, Goals(Weight.BYTES, 0.05)), view.known(groups_of(place, operators))
    size = state_bytes(seen)
    assert model.columns[Weight.BYTES][0] == max(size, 1)
    for name in NAMES if size else ():
        whole = name in view.holders(groups_of(place, operators)) or name == owner
        assert state.lacks(0, model.worker_of(name)) == (0 if whole else lacking_bytes(seen, name))

"""Lasting, one-sided failures: commits go on within a stated time, and the checker finds those that do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replication_manager.protocol.changes.chains import Chains
from replication_manager.protocol.groups import rules
from replication_manager.protocol.placement.impaired import Impaired
from replication_manager.protocol.placement.lagging import Laggards
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import WorkerRecord
from tests.nightly import few
from tests.simulation.grey import KINDS, Kind, violation
from tests.simulation.support.simulation import in_ci_and_more
from worker_runtime.protocol.chain.outbox import Outbox

SEEDS_IN_CI, SEEDS = 1, 6
CASES = [case for kind in KINDS for case in few((kind, factor) for factor in kind.factors)]
Patch = pytest.MonkeyPatch


def label(case: tuple[Kind, int]) -> str:
    kind, factor = case
    return f"{kind.name}-{factor}"


@pytest.mark.parametrize("seeds", in_ci_and_more(SEEDS_IN_CI, SEEDS))
@pytest.mark.parametrize("case", CASES, ids=label)
def test_commits_go_on(case: tuple[Kind, int], seeds: range) -> None:
    kind, factor = case
    for seed in seeds:
        if text := violation(kind, seed, factor):
            pytest.fail(text)


def an_impaired_worker_keeps_its_groups(patch: Patch) -> None:
    patch.setattr(rules, "without_impaired", lambda members, *rest: members)


def a_mute_worker_is_not_noticed(patch: Patch) -> None:
    patch.setattr(Impaired, "_is_mute", lambda *_: False)


def files_are_offered_to_the_first_of_the_chain_only(patch: Patch) -> None:
    patch.setattr(Outbox, "_put_next_first", lambda *_: [])


def a_farewell_is_a_loss(patch: Patch) -> None:
    leave = Membership.leave

    def at_once(self: Membership, record: WorkerRecord, now: float, *, for_good: bool) -> None:
        leave(self, record, now, for_good=for_good)
        record.lease_ends = now

    patch.setattr(Membership, "leave", at_once)


def nobody_is_replaced_for_lagging(patch: Patch) -> None:
    patch.setattr(Laggards, "judge", lambda *_: [])


def a_dead_process_is_waited_for(patch: Patch) -> None:
    patch.setattr(Chains, "suspect", lambda *_: [])
    patch.setattr(Membership, "expired", lambda *_: [])


BUGS = [
    (an_impaired_worker_keeps_its_groups, "fill_owner", 1),
    (an_impaired_worker_keeps_its_groups, "fill_secondary", 1),
    (an_impaired_worker_keeps_its_groups, "fail_owner", 1),
    (an_impaired_worker_keeps_its_groups, "fail_secondary", 1),
    (a_mute_worker_is_not_noticed, "mute_owner", 2),
    (nobody_is_replaced_for_lagging, "mute_owner", 1),
    (a_dead_process_is_waited_for, "lose_owners_sidecar", 1),
    (files_are_offered_to_the_first_of_the_chain_only, "cut_first_link", 2),
    (files_are_offered_to_the_first_of_the_chain_only, "cut_guest_off_the_owner", 1),
    (a_farewell_is_a_loss, "restart_secondary", 1),
]


@pytest.mark.parametrize(("bug", "name", "factor"), BUGS)
def test_a_deliberate_bug_is_found(
    bug: Callable[[Patch], None], name: str, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    kind = next(kind for kind in KINDS if kind.name == name and factor in kind.factors)
    assert any(violation(kind, seed, factor) for seed in range(SEEDS)), f"not found by {SEEDS} seeds"

"""Which archived batches and packs stay."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rhino_archive.retention import DAY_MS, GRACE_MS, HOUR_MS, Retention, Sweep, Written, retention_of, sweep
from rhino_core.errors import InvalidRequestError

MINUTE_MS = 60_000


def every(minutes: int, until_ms: int) -> list[Written]:
    return [Written(f"b{ms // MINUTE_MS:08d}", ms) for ms in range(0, until_ms, minutes * MINUTE_MS)]


def ages_h(kept: frozenset[str], now_ms: int) -> list[float]:
    return sorted((now_ms - int(name[1:]) * MINUTE_MS) / HOUR_MS for name in kept)


def test_the_newest_of_each_hour_and_day_stay() -> None:
    now_ms = 3 * DAY_MS
    kept = Retention(newest=2, hourly=3, daily=2).kept(every(10, now_ms))
    assert ages_h(kept, now_ms) == pytest.approx([1 / 6, 2 / 6, 7 / 6, 13 / 6, 24 + 1 / 6])


def test_a_query_that_rested_keeps_its_batches() -> None:
    """Hours and days without batches do not count."""
    kept = Retention(newest=1, hourly=2, daily=0).kept([Written("a", 0), Written("b", 400 * DAY_MS)])
    assert kept == {"a", "b"}


def test_the_newest_batch_always_stays() -> None:
    assert Retention(0, 0, 1).kept([Written("a", 1), Written("b", 2)]) == {"b"}
    assert Retention(1, 0, 0).kept([]) == frozenset()


def test_the_form_of_the_setting() -> None:
    assert retention_of("newest=3, hourly=24,daily=7") == Retention(3, 24, 7)
    assert retention_of("daily=30") == Retention(0, 0, 30)
    for bad in ("", "newest", "newest=-1", "newest=1,newest=2", "weekly=3", "newest=0"):
        with pytest.raises(InvalidRequestError, match="must be like newest=3,hourly=24,daily=7"):
            retention_of(bad)


def test_a_pack_goes_when_it_had_no_name_for_the_grace() -> None:
    first = sweep(["a", "b"], {"a"}, {}, noted_ms=0)
    assert first == Sweep((), {"b": None})
    second = sweep(["a", "b"], {"a"}, first.unnamed, noted_ms=1000)
    assert second == Sweep((), {"b": 1000}), "since the sweep that saw it first"
    assert sweep(["a", "b"], {"a"}, second.unnamed, 1000 + GRACE_MS - 1).gone == ()
    assert sweep(["a", "b"], {"a"}, second.unnamed, 1000 + GRACE_MS).gone == ("b",)


def test_a_pack_that_gets_a_name_again_begins_anew() -> None:
    second = sweep(["a"], {"a"}, {"a": 0}, noted_ms=GRACE_MS)
    assert sweep(["a"], (), second.unnamed, noted_ms=2 * GRACE_MS) == ((), {"a": None})


@pytest.mark.parametrize(("round_ms_max", "holds"), [(GRACE_MS // 2, True), (3 * GRACE_MS, False)])
def test_nothing_named_is_deleted_as_long_as_rounds_are_shorter_than_the_grace(round_ms_max: int, holds: bool) -> None:
    if holds:
        play(round_ms_max)
    else:
        with pytest.raises(AssertionError, match="a manifest names a pack that was deleted"):
            play(round_ms_max, Phase.generate)  # a smaller example would need half a minute


def play(round_ms_max: int, *phases: Phase) -> None:
    @settings(max_examples=500, deadline=None, derandomize=True, phases=phases or tuple(Phase))
    @given(st.data())
    def once(data: st.DataObject) -> None:
        archive_of(data, round_ms_max)

    once()


def archive_of(data: st.DataObject, round_ms_max: int) -> None:
    """Several archivers with slow rounds on any former manifest. A keeper prunes and sweeps at any time."""
    packs, manifests = set[str](), dict[str, tuple[int, frozenset[str]]]()
    rounds: list[tuple[int, frozenset[str]]] = []  # begin, and the packs that its manifest will name
    unnamed: dict[str, int | None] = {}
    now_ms = noted_ms = 0
    for step in range(data.draw(st.integers(1, 40))):
        now_ms += data.draw(st.sampled_from([0, GRACE_MS // 3, GRACE_MS // 2]))
        rounds = [one for one in rounds if now_ms - one[0] < round_ms_max]
        action = data.draw(st.sampled_from(["begin", "write", "prune", "sweep"]))
        if action == "begin":
            basis = data.draw(st.sampled_from(sorted(manifests))) if manifests else None
            packs.add(f"p{step}")
            reused = data.draw(st.sampled_from([frozenset[str](), manifests[basis][1] if basis else frozenset()]))
            rounds.append((now_ms, frozenset({f"p{step}"}) | reused))
        elif action == "write" and rounds:
            manifests[f"m{step}"] = (now_ms, rounds.pop(data.draw(st.integers(0, len(rounds) - 1)))[1])
        elif action == "prune":
            kept = Retention(1, 0, 0).kept(Written(name, ms) for name, (ms, _) in manifests.items())
            manifests = {name: found for name, found in manifests.items() if name in kept}
        elif action == "sweep":
            named = {pack for _, found in manifests.values() for pack in found}
            gone, noted = sweep(sorted(packs), named, unnamed, noted_ms)
            packs.difference_update(gone)
            unnamed, noted_ms = dict(noted), now_ms
        assert all(found <= packs for _, found in manifests.values()), "a manifest names a pack that was deleted"

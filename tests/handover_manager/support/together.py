"""Parts of the tests of together that other tests use as well."""

from __future__ import annotations

from tests.handover_manager.together import World

WEIGHTS = {
    World.pass_time: 30,
    World.begin_batch: 20,
    World.end_batch: 20,
    World.answer: 30,
    World.catch_up: 12,
    World.idle: 4,
    World.hand_over_some: 6,
    World.remove_if_safe: 6,
    World.drop_excess: 3,
    World.drain: 3,
    World.cancel: 1,
    World.lose_worker: 1,
    World.intrude: 1,
    World.restart_manager: 1,
}

"""The policy of adaptation: when a query's virtual nodes move without being asked for (Madsen & Zhou, section 3)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rhino_core.settings import ManagerSettings


class Mode(enum.Enum):
    """OFF: nothing is observed. OBSERVE: decisions are journalled, and nothing moves. ACT: virtual nodes move."""

    OFF = "off"
    OBSERVE = "observe"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Policy:
    """When to act, and how much.

    A window is `window_batches` batches of a query. The busiest worker may exceed the mean task time of the workers by
    the part `band`. It has to do so in `broken` of the newest `windows`. A plan's saving within `horizon_s` has to
    exceed its cost.

    A moved virtual node stays for `cool_down_s`. All plans of an hour together move no more than `hourly_bytes` and
    `hourly_moves`. After a move, `trial_windows` windows show whether it has helped. Fewer workers are wanted only when
    fewer have sufficed for `scale_in_s`. As many are wanted as work a backlog off in `catch_up_s`.
    """

    mode: Mode = Mode.OBSERVE
    band: float = 0.2
    window_batches: int = 4
    windows: int = 4
    broken: int = 3
    horizon_s: float = 600.0
    cool_down_s: float = 600.0
    scale_in_s: float = 3600.0
    catch_up_s: float = 600.0
    hourly_bytes: int = 64 << 30
    hourly_moves: int = 256
    trial_windows: int = 2


def policy_of(settings: ManagerSettings) -> Policy:
    return Policy(
        mode=Mode(settings.adaptation),
        band=settings.adaptation_band,
        cool_down_s=settings.adaptation_cool_down_s,
        scale_in_s=settings.adaptation_scale_in_s,
        catch_up_s=settings.adaptation_catch_up_s,
        hourly_bytes=settings.adaptation_hourly_bytes,
        hourly_moves=settings.adaptation_hourly_moves,
    )

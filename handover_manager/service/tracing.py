"""Spans of handovers: one of the whole, and one of each step while it is prepared and while it is marked."""

from __future__ import annotations

from handover_manager.drive.handover import DrivenHandover
from rhino_core.tracing import Traces
from rhino_model.handovers import Phase


class HandoverTraces:
    """Hears of each change of a handover. Catch-ups of the named groups are in traces of the sidecars."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._phases: dict[str, dict[int, Phase]] = {}  # of the steps of handovers that have not ended

    def changed(self, handover: DrivenHandover) -> None:
        number = handover.handover_id
        trace = f"handover {number}"
        if number not in self._phases and handover.ended:
            return
        before = self._phases.setdefault(number, {})
        self._traces.begin(trace, "whole", "handover", handover=number, moves=len(handover.plan.moves), by=handover.by)
        for at, step in enumerate(handover.steps, 1):
            if (was := before.get(at)) is step.phase:
                continue
            before[at] = step.phase
            if was is not None:
                failed = step.phase.ended and step.phase is not Phase.CONFIRMED
                self._traces.end(trace, f"{at} {was.value}", error=step.reason if failed else "")
            if not step.phase.ended and step.phase is not Phase.PLANNED:
                groups = " ".join(sorted(map(str, step.target_of_group)))
                self._traces.begin(trace, f"{at} {step.phase.value}", step.phase.value, parent="whole", groups=groups)
        if handover.ended:
            del self._phases[number]
            self._traces.end(trace, "whole", error=handover.reason, phase=handover.phase.value)

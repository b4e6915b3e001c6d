"""A handover is one trace: the whole, and each step while it is prepared and while it is marked."""

from __future__ import annotations

from handover_manager.service.tracing import HandoverTraces
from workloads.adaptation.scene import group, pair

G0, G1 = group(0, 0), group(0, 1)


class Recorded:
    """Implements `Traces`."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, trace: str, key: str, name: str, *, parent: str = "", **facts: str | int) -> None:
        self.lines.append(f"begin {trace}: {key} ({name}) below {parent or 'nothing'}")

    def end(self, trace: str, key: str, *, error: str = "", **facts: str | int) -> None:
        self.lines.append(f"end {trace}: {key}{f' failed: {error}' if error else ''}")


def test_a_confirmed_handover() -> None:
    play, recorded = pair(), Recorded()
    traces = HandoverTraces(recorded)
    handover = play.start("w3", "0/0")
    traces.changed(handover)
    traces.changed(handover)  # nothing new
    play.cluster.chain(G0, "w1 w2 w3", {"w1": 100, "w2": 100, "w3": 100})
    play.see()
    traces.changed(handover)
    play.batch(5, {G0: "w3", G1: "w1"})
    traces.changed(handover)
    traces.changed(handover)  # after its end
    begun = "begin handover h1: whole (handover) below nothing"
    assert list(dict.fromkeys(recorded.lines)) == [
        begun,
        "begin handover h1: 1 preparing (preparing) below whole",
        "end handover h1: 1 preparing",
        "begin handover h1: 1 marked (marked) below whole",
        "end handover h1: 1 marked",
        "end handover h1: whole",
    ]


def test_the_reason_of_a_failure_is_in_it() -> None:
    play, recorded = pair(), Recorded()
    traces = HandoverTraces(recorded)
    handover = play.start("w3", "0/0")
    traces.changed(handover)
    play.cluster.lose("w3")
    play.see()
    traces.changed(handover)
    ends = [line for line in recorded.lines if line.startswith("end")]
    assert ends == [
        f"end handover h1: 1 preparing failed: {handover.reason}",
        f"end handover h1: whole failed: {handover.reason}",
    ]
    assert "w3" in handover.reason

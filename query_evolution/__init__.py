"""Changes the code of running queries: modify, supervise, branch, shadow, promote, restructure, rebuild.

Names are imported on first use, because commands need only few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhino_core.lazy import lazy

if TYPE_CHECKING:
    from query_evolution.client.branch import Branch as Branch
    from query_evolution.client.branch import branch as branch
    from query_evolution.client.promote import Promoted as Promoted
    from query_evolution.client.promote import StateOf as StateOf
    from query_evolution.client.promote import promote as promote
    from query_evolution.client.rebuild import Rebuilt as Rebuilt
    from query_evolution.client.rebuild import rebuild as rebuild
    from query_evolution.client.restructure import OperatorFate as OperatorFate
    from query_evolution.client.restructure import Restructured as Restructured
    from query_evolution.client.restructure import restructure as restructure
    from query_evolution.modify.code import processor_function as processor_function
    from query_evolution.modify.code import state_function as state_function
    from query_evolution.modify.jars import jar_function as jar_function
    from query_evolution.modify.join import StaticTable as StaticTable
    from query_evolution.modify.modifications import Modifications as Modifications
    from query_evolution.modify.record import Canary as Canary
    from query_evolution.replace.supervise import Outcome as Outcome
    from query_evolution.replace.supervise import Supervised as Supervised
    from query_evolution.replace.supervise import Trial as Trial
    from query_evolution.replace.supervise import supervise as supervise
    from query_evolution.shadows.comparing import CompareRules as CompareRules
    from query_evolution.shadows.outputs import FileSink as FileSink
    from query_evolution.shadows.outputs import Recomputed as Recomputed
    from query_evolution.shadows.report import ComparedBatch as ComparedBatch
    from query_evolution.shadows.report import ShadowReport as ShadowReport
    from query_evolution.shadows.run import shadow as shadow
    from query_evolution.structure.alignment import Choices as Choices
    from query_evolution.structure.sketch import sketch as sketch

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "query_evolution.client.branch": "Branch branch",
        "query_evolution.client.promote": "Promoted StateOf promote",
        "query_evolution.client.rebuild": "Rebuilt rebuild",
        "query_evolution.client.restructure": "OperatorFate Restructured restructure",
        "query_evolution.modify.code": "processor_function state_function",
        "query_evolution.modify.jars": "jar_function",
        "query_evolution.modify.join": "StaticTable",
        "query_evolution.modify.modifications": "Modifications",
        "query_evolution.modify.record": "Canary",
        "query_evolution.replace.supervise": "Outcome Supervised Trial supervise",
        "query_evolution.structure.alignment": "Choices",
        "query_evolution.structure.sketch": "sketch",
        "query_evolution.shadows.comparing": "CompareRules",
        "query_evolution.shadows.outputs": "FileSink Recomputed",
        "query_evolution.shadows.report": "ComparedBatch ShadowReport",
        "query_evolution.shadows.run": "shadow",
    },
)

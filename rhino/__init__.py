"""The public API for PySpark: settings for a session, and the client of the handover manager.

Names are imported on first use, because the daemons and the command line need only few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handover_manager.plan.intents import Drain as Drain
    from handover_manager.plan.intents import Rebalance as Rebalance
    from handover_manager.plan.intents import ScaleIn as ScaleIn
    from handover_manager.plan.intents import ScaleOut as ScaleOut
    from handover_manager.plan.intents import Weight as Weight
    from handover_manager.plan.strategy import Kind as Kind
    from handover_manager.plan.strategy import Strategy as Strategy
    from rhino.client.branch import Branch as Branch
    from rhino.client.branch import branch as branch
    from rhino.client.forget import ForgottenJob as ForgottenJob
    from rhino.client.forget import JobUsage as JobUsage
    from rhino.client.handover_client import HandoverClient as HandoverClient
    from rhino.client.handovers import Action as Action
    from rhino.client.handovers import DrainView as DrainView
    from rhino.client.handovers import Explanation as Explanation
    from rhino.client.handovers import Handover as Handover
    from rhino.client.handovers import Move as Move
    from rhino.client.handovers import MoveKind as MoveKind
    from rhino.client.handovers import Phase as Phase
    from rhino.client.handovers import Plan as Plan
    from rhino.client.handovers import Prediction as Prediction
    from rhino.client.loads import BatchLoad as BatchLoad
    from rhino.client.overview import JobView as JobView
    from rhino.client.overview import VirtualNodeView as VirtualNodeView
    from rhino.client.promote import Promoted as Promoted
    from rhino.client.promote import StateOf as StateOf
    from rhino.client.promote import promote as promote
    from rhino.client.rebuild import Rebuilt as Rebuilt
    from rhino.client.rebuild import rebuild as rebuild
    from rhino.client.restructure import OperatorFate as OperatorFate
    from rhino.client.restructure import Restructured as Restructured
    from rhino.client.restructure import restructure as restructure
    from spark_connector.checkpoint import rhino_checkpoint as rhino_checkpoint
    from spark_connector.conf import CommitRules as CommitRules
    from spark_connector.conf import Timeouts as Timeouts
    from spark_connector.conf import rhino_conf as rhino_conf
    from spark_connector.local.session import local_session as local_session
    from spark_connector.modify.code import processor_function as processor_function
    from spark_connector.modify.code import state_function as state_function
    from spark_connector.modify.jars import jar_function as jar_function
    from spark_connector.modify.join import StaticTable as StaticTable
    from spark_connector.modify.modifications import Modifications as Modifications
    from spark_connector.modify.record import Canary as Canary
    from spark_connector.restart.supervise import Supervised as Supervised
    from spark_connector.restart.supervise import supervise as supervise
    from spark_connector.restart.trial import Outcome as Outcome
    from spark_connector.restart.trial import Trial as Trial
    from spark_connector.restructure.alignment import Choices as Choices
    from spark_connector.restructure.sketch import sketch as sketch
    from spark_connector.shadow.comparing import CompareRules as CompareRules
    from spark_connector.shadow.outputs import FileSink as FileSink
    from spark_connector.shadow.outputs import Recomputed as Recomputed
    from spark_connector.shadow.report import ComparedBatch as ComparedBatch
    from spark_connector.shadow.report import ShadowReport as ShadowReport
    from spark_connector.shadow.run import shadow as shadow

_NAMES = {
    "handover_manager.plan.intents": "Drain Rebalance ScaleIn ScaleOut Weight",
    "handover_manager.plan.strategy": "Kind Strategy",
    "rhino.client.branch": "Branch branch",
    "rhino.client.forget": "ForgottenJob JobUsage",
    "rhino.client.handover_client": "HandoverClient",
    "rhino.client.handovers": "Action DrainView Explanation Handover Move MoveKind Phase Plan Prediction",
    "rhino.client.loads": "BatchLoad",
    "rhino.client.overview": "JobView VirtualNodeView",
    "rhino.client.promote": "Promoted StateOf promote",
    "rhino.client.rebuild": "Rebuilt rebuild",
    "rhino.client.restructure": "OperatorFate Restructured restructure",
    "spark_connector.checkpoint": "rhino_checkpoint",
    "spark_connector.conf": "CommitRules Timeouts rhino_conf",
    "spark_connector.local.session": "local_session",
    "spark_connector.modify.code": "processor_function state_function",
    "spark_connector.modify.jars": "jar_function",
    "spark_connector.modify.join": "StaticTable",
    "spark_connector.modify.modifications": "Modifications",
    "spark_connector.modify.record": "Canary",
    "spark_connector.restart.supervise": "Supervised supervise",
    "spark_connector.restart.trial": "Outcome Trial",
    "spark_connector.restructure.alignment": "Choices",
    "spark_connector.restructure.sketch": "sketch",
    "spark_connector.shadow.comparing": "CompareRules",
    "spark_connector.shadow.outputs": "FileSink Recomputed",
    "spark_connector.shadow.report": "ComparedBatch ShadowReport",
    "spark_connector.shadow.run": "shadow",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])

"""The public API for PySpark: settings for a session, and the client of the handover manager.

Names are imported on first use, because the daemons and the command line need only few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhino_core.lazy import lazy

if TYPE_CHECKING:
    from handover_manager.plan.intents import Drain as Drain
    from handover_manager.plan.intents import Rebalance as Rebalance
    from handover_manager.plan.intents import ScaleIn as ScaleIn
    from handover_manager.plan.intents import ScaleOut as ScaleOut
    from handover_manager.plan.intents import Weight as Weight
    from handover_manager.plan.strategy import Kind as Kind
    from handover_manager.plan.strategy import Strategy as Strategy
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
    from spark_connector.checkpoint import rhino_checkpoint as rhino_checkpoint
    from spark_connector.conf import CommitRules as CommitRules
    from spark_connector.conf import Timeouts as Timeouts
    from spark_connector.conf import rhino_conf as rhino_conf
    from spark_connector.local.session import local_session as local_session

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "handover_manager.plan.intents": "Drain Rebalance ScaleIn ScaleOut Weight",
        "handover_manager.plan.strategy": "Kind Strategy",
        "rhino.client.forget": "ForgottenJob JobUsage",
        "rhino.client.handover_client": "HandoverClient",
        "rhino.client.handovers": "Action DrainView Explanation Handover Move MoveKind Phase Plan Prediction",
        "rhino.client.loads": "BatchLoad",
        "rhino.client.overview": "JobView VirtualNodeView",
        "spark_connector.checkpoint": "rhino_checkpoint",
        "spark_connector.conf": "CommitRules Timeouts rhino_conf",
        "spark_connector.local.session": "local_session",
    },
)

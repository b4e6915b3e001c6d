"""The public API for PySpark: settings for a session, and the client of the handover manager.

Names are imported on first use, because the daemons and the command line need only few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhino_core.lazy import lazy

if TYPE_CHECKING:
    from rhino.client.handover_client import HandoverClient as HandoverClient
    from rhino.client.overview import JobView as JobView
    from rhino.client.overview import VirtualNodeView as VirtualNodeView
    from rhino.client.query_record import ForgottenJob as ForgottenJob
    from rhino.client.query_record import JobUsage as JobUsage
    from rhino_model.handovers import Action as Action
    from rhino_model.handovers import DrainView as DrainView
    from rhino_model.handovers import Explanation as Explanation
    from rhino_model.handovers import Handover as Handover
    from rhino_model.handovers import Move as Move
    from rhino_model.handovers import MoveKind as MoveKind
    from rhino_model.handovers import Phase as Phase
    from rhino_model.handovers import Plan as Plan
    from rhino_model.handovers import Prediction as Prediction
    from rhino_model.intents import Drain as Drain
    from rhino_model.intents import Rebalance as Rebalance
    from rhino_model.intents import ScaleIn as ScaleIn
    from rhino_model.intents import ScaleOut as ScaleOut
    from rhino_model.intents import Weight as Weight
    from rhino_model.loads import BatchLoad as BatchLoad
    from rhino_model.strategy import Kind as Kind
    from rhino_model.strategy import Strategy as Strategy
    from spark_connector.checkpoint import rhino_checkpoint as rhino_checkpoint
    from spark_connector.conf import CommitRules as CommitRules
    from spark_connector.conf import Timeouts as Timeouts
    from spark_connector.conf import rhino_conf as rhino_conf
    from spark_connector.local.session import local_session as local_session

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "rhino_model.intents": "Drain Rebalance ScaleIn ScaleOut Weight",
        "rhino_model.strategy": "Kind Strategy",
        "rhino.client.query_record": "ForgottenJob JobUsage",
        "rhino.client.handover_client": "HandoverClient",
        "rhino_model.handovers": "Action DrainView Explanation Handover Move MoveKind Phase Plan Prediction",
        "rhino_model.loads": "BatchLoad",
        "rhino.client.overview": "JobView VirtualNodeView",
        "spark_connector.checkpoint": "rhino_checkpoint",
        "spark_connector.conf": "CommitRules Timeouts rhino_conf",
        "spark_connector.local.session": "local_session",
    },
)

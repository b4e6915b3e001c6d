"""Rhino for PySpark: settings for a session, and the client of the handover manager."""

from handover_manager.core.intents import Drain, Rebalance, ScaleIn, ScaleOut, Weight
from handover_manager.core.strategy import Kind, Strategy
from rhino.rpc.overview import JobView, VirtualNodeView
from spark_connector.checkpoint import rhino_checkpoint
from spark_connector.conf import rhino_conf
from spark_connector.rpc.client import HandoverClient
from spark_connector.rpc.handovers import DrainView, Explanation, Handover, Move, MoveKind, Phase, Plan, Prediction

__all__ = [
    "Drain",
    "DrainView",
    "Explanation",
    "Handover",
    "HandoverClient",
    "JobView",
    "Kind",
    "Move",
    "MoveKind",
    "Phase",
    "Plan",
    "Prediction",
    "Rebalance",
    "ScaleIn",
    "ScaleOut",
    "Strategy",
    "VirtualNodeView",
    "Weight",
    "rhino_checkpoint",
    "rhino_conf",
]

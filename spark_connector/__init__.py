"""Rhino for PySpark: settings for a session, and the client of the handover manager."""

from rhino.rpc.overview import JobView, VirtualNodeView
from spark_connector.checkpoint import rhino_checkpoint
from spark_connector.conf import rhino_conf
from spark_connector.rpc.client import Handover, HandoverClient, Move, MoveKind, Phase, Plan

__all__ = [
    "Handover",
    "HandoverClient",
    "JobView",
    "Move",
    "MoveKind",
    "Phase",
    "Plan",
    "VirtualNodeView",
    "rhino_checkpoint",
    "rhino_conf",
]

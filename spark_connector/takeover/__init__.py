"""Imports existing query checkpoints into Rhino (`adopt`) and exports them again (`release`)."""

from spark_connector.takeover.adopt import adopt
from spark_connector.takeover.progress import Outcome, Progress
from spark_connector.takeover.release import release

__all__ = ["Outcome", "Progress", "adopt", "release"]

"""Existing query checkpoints into Rhino (`adopt`) and back out of it (`release`)."""

from spark_connector.takeover.adopt import adopt
from spark_connector.takeover.progress import Outcome, Progress
from spark_connector.takeover.release import release

__all__ = ["Outcome", "Progress", "adopt", "release"]

"""Imports existing query checkpoints into Rhino (`adopt`) and exports them again (`release`)."""

from spark_connector.takeover.adopt import AdoptOptions, adopt
from spark_connector.takeover.progress import Outcome, Progress
from spark_connector.takeover.release import check_released, release

__all__ = ["AdoptOptions", "Outcome", "Progress", "adopt", "check_released", "release"]

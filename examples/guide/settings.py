"""`python -m examples.guide.settings`: the settings of Rhino, as a running session has them."""

from __future__ import annotations

from examples.guide.common import small_cluster
from rhino import rhino_conf


def main() -> None:
    with small_cluster() as (cluster, spark, _):
        for key in rhino_conf(cluster.manager):
            print(key, "=", spark.conf.get(key, "(not set)"))


if __name__ == "__main__":
    main()

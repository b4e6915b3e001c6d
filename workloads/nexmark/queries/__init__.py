"""All queries by name."""

from workloads.nexmark.queries import joins, sessions, simple, windows, winning
from workloads.nexmark.query import Query

_MADE = (
    simple.q1(),
    simple.q2(),
    joins.q3(),
    winning.q4(),
    windows.q5(),
    winning.q6(),
    windows.q7(),
    joins.q8(),
    windows.nbq5(),
    joins.nbq8(),
    sessions.nbqx(),
)
QUERIES: dict[str, Query] = {query.name: query for query in _MADE}

"""The platform's metrics for Prometheus: what waits to be carried to a tool, and for how long."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tasks.state.lags import lags

NAMES = ("loopline_waiting", "loopline_waiting_seconds")
LABELS = ("tool", "rows", "project")


def metrics(request: Request) -> Response:
    """Return the metrics as text; a tool that lacks nothing of a project has no line for it."""
    from prometheus_client import CollectorRegistry, Gauge
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

    registry = CollectorRegistry()
    count = Gauge(NAMES[0], "Rows that a tool does not have yet", LABELS, registry=registry)
    seconds = Gauge(NAMES[1], "For how long the oldest has waited", LABELS, registry=registry)
    for lag in lags(request.app.state.workspace.state):
        names = (lag.tool, lag.rows, lag.project)
        count.labels(*names).set(lag.num_rows)
        seconds.labels(*names).set(lag.seconds)
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


ROUTES = [Route("/metrics", metrics)]

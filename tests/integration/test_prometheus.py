"""A real Prometheus loads the shipped rules, and evaluates them and the dashboard's panels on the server's metrics."""

import contextlib
import http.server
import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from tasks.host.ports import any_free
from tasks.serve.metrics import CONTENT_TYPE, Metrics
from tests.contract.test_observability import FOLDER, expressions

pytestmark = pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus and promtool: the package's")
ROOT = Path(__file__).parents[2]
RULES = [str(path) for path in sorted((ROOT / FOLDER).glob("*-alerts.yaml"))]
FIRING = {
    "LooplineModelNotReady": {'loopline_serve_ready{model="trips"}': "0x30"},
    "LooplineServerGone": {'loopline_serve_ready{model="trips"}': "1 _x30"},
    "LooplineModelGone": {
        'loopline_serve_ready{model="trips"}': "1x10 _x30", 'loopline_serve_ready{model="other"}': "1x40"
    },
    "LooplineServingErrors": {
        'loopline_serve_requests_total{model="trips", status="500"}': "0+2x40",
        'loopline_serve_requests_total{model="trips", status="200"}': "0+100x40",
    },
    "LooplineServingSlow": {
        'loopline_serve_request_seconds_bucket{model="trips", version="1", le="0.5"}': "0+90x40",
        'loopline_serve_request_seconds_bucket{model="trips", version="1", le="1.0"}': "0+100x40",
        'loopline_serve_request_seconds_bucket{model="trips", version="1", le="+Inf"}': "0+100x40",
    },
    "LooplineServingOverloaded": {"loopline_serve_queue_waiting": "101x40"},
    "LooplineVersionRefused": {'loopline_serve_refused_versions{model="trips"}': "1x40"},
    "LooplineVersionReturned": {'loopline_serve_returned_versions{model="trips"}': "1x40"},
    "LooplinePredictionsNotLogged": {'loopline_serve_unlogged_rows_total{model="trips"}': "0+1x40"},
    "LooplinePredictionsWait": {'loopline_serve_waiting_bytes{model="trips"}': "65000000x40"},
    "LooplineToolBehind": {'loopline_waiting_seconds{tool="MLflow", rows="metrics", project="trips"}': "601x40"},
}  # fmt: skip
"""Series of samples, one a minute, of which each rule fires, alone of those for the same model."""


def test_each_rule_fires_on_what_it_is_for_and_not_without(tmp_path: Path) -> None:
    names = [
        rule["alert"]
        for file in RULES
        for group in YAML(typ="safe").load(Path(file).read_text())["groups"]
        for rule in group["rules"]
    ]
    assert sorted(names) == sorted(FIRING)
    healthy = {"series": 'loopline_serve_ready{model="trips"}', "values": "1x40"}
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": text, "values": values} for text, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count by (alertname) (ALERTS{{alertstate="firing", alertname="{name}"}})',
                    "eval_time": "20m",
                    "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
                }
            ],
        }
        for name, series in FIRING.items()
    ]
    silent = {"expr": "ALERTS", "eval_time": "20m", "exp_samples": []}
    tests.append({"name": "healthy", "interval": "1m", "input_series": [healthy], "promql_expr_test": [silent]})
    document = tmp_path / "rules.json"  # JSON is YAML
    document.write_text(json.dumps({"rule_files": RULES, "evaluation_interval": "1m", "tests": tests}))
    ran = subprocess.run(["promtool", "test", "rules", str(document)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextlib.contextmanager
def serving(text: bytes) -> Iterator[int]:
    """Serve a text at every path; yield the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def prometheus(folder: Path, target: int) -> Iterator[httpx.Client]:
    """Run a Prometheus that scrapes a port each second; yield a client of its API."""
    scraped = [{"job_name": "loopline", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}]
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config, port = folder / "prometheus.yml", any_free([])
    config.write_text(json.dumps({"global": every, "rule_files": RULES, "scrape_configs": scraped}))
    options = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *options], stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=10) as client:
                yield client
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def answer(client: httpx.Client, path: str, **params: str) -> Any:
    document = client.get(path, params=params).json()
    assert document["status"] == "success", (params, document)
    return document["data"]


@pytest.mark.wide
def test_a_real_prometheus_evaluates_the_rules_and_the_panels(tmp_path: Path) -> None:
    metrics = Metrics()
    loaded = SimpleNamespace(is_ready=False, release=None)
    metrics.look(SimpleNamespace(waiting=0), {"trips": loaded})  # type: ignore[dict-item,arg-type]
    with serving(metrics.text()) as target, prometheus(tmp_path, target) as client:
        deadline, states = time.monotonic() + 60, {}
        while time.monotonic() < deadline and states.get("LooplineModelNotReady") != "pending":
            time.sleep(0.2)
            with contextlib.suppress(httpx.TransportError, ValueError):
                groups = answer(client, "/rules")["groups"]
                rules = [rule for group in groups for rule in group["rules"]]
                states = {rule["name"]: rule["state"] for rule in rules if rule["health"] == "ok"}
        assert states == dict.fromkeys(FIRING, "inactive") | {"LooplineModelNotReady": "pending"}
        for expression in expressions(ROOT):
            for variable, value in {"$model": "trips", "$__rate_interval": "5m", "$__interval": "1m"}.items():
                expression = expression.replace(variable, value)
            if not expression.startswith("label_values"):
                answer(client, "/query", query=expression)
        (ready,) = answer(client, "/query", query='min by (model) (loopline_serve_ready{model=~"trips"})')["result"]
        assert (ready["metric"], ready["value"][1]) == ({"model": "trips"}, "0")

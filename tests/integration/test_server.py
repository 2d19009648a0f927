"""A real server: who gets in, over TLS too; many workers; how it starts, drains and ends; what Prometheus reads."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import threading
import time
from dataclasses import replace
from pathlib import Path

import grpc
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tasks.host import ports
from tasks.host.http_guard import SERVE_TOKEN, token_of
from tasks.host.workspace import Workspace
from tasks.serve.grpc.messages import message
from tests import warm
from tests.bench.load import Load, http_request, load
from tests.certificates import certificate
from tests.conftest import Serve
from tests.over_grpc import call_whole, typed_request
from tests.running import is_there
from tests.serving import ROOT, LiveServer, crown

GOOD = {"dataframe_records": [{"x": 1.0, "c": "u"}]}
BODY = json.dumps(GOOD).encode()


@pytest.fixture
def tiny(workspace: Workspace) -> Workspace:
    crown(workspace, "tiny")
    return workspace


def samples(server: LiveServer, name: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(server.get("/metrics").ok().body.decode())
    found = [sample for family in families for sample in family.samples if sample.name == f"loopline_serve_{name}"]
    return {tuple(value for _, value in sorted(sample.labels.items())): sample.value for sample in found}


def test_what_a_server_does_is_counted_and_logged(tiny: Workspace, serve: Serve) -> None:
    server = serve("tiny")
    for _ in range(3):
        assert server.post("/invocations", GOOD, **{"X-Request-Id": "r7"}).headers["x-request-id"] == "r7"
    assert server.post("/invocations", {}).status == 400
    assert samples(server, "requests_total")["tiny", "200", "1"] == 3
    assert samples(server, "rows_total") == {("tiny", "1"): 3}
    assert samples(server, "predictions_total") == {("yes", "tiny", "1"): 3}
    assert samples(server, "ready") == {("tiny",): 1}
    lines = [json.loads(line) for line in server.printed.splitlines() if '"request"' in line]
    told = [(line["id"], line["model"], line["version"], line["status"], line["rows"]) for line in lines]
    assert told.count(("r7", "tiny", "1", 200, 1)) == 3


def test_readiness_waits_for_a_version_and_liveness_does_not(workspace: Workspace, serve: Serve) -> None:
    server = serve("tiny", ready=False)
    assert (server.get("/health").status, server.get("/ping").status) == (200, 503)
    assert server.get("/ping").headers["retry-after"] == "1"
    assert server.post("/invocations", GOOD).status == 503
    crown(workspace, "tiny")
    server.wait_until(lambda: server.get("/ping").status == 200)
    assert server.post("/invocations", GOOD).status == 200


def test_a_server_ends_when_it_has_answered_what_is_under_way(tiny: Workspace, serve: Serve) -> None:
    server = serve("tiny")
    with contextlib.closing(_connection(server)) as idle, contextlib.closing(_connection(server)) as half:
        idle.request("GET", "/ping")
        assert idle.getresponse().read()
        half.putrequest("POST", "/invocations")
        half.putheader("Content-Length", str(len(BODY)))
        half.endheaders(BODY[:10])
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: _is_refused(server))
        half.send(BODY[10:])
        answer = half.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        assert json.loads(answer.read())["version"] == "1"
    assert server.process.wait(20) == 0


@pytest.mark.wide
def test_load_while_it_ends_meets_no_failed_answer(tiny: Workspace, serve: Serve) -> None:
    server = serve("tiny")
    met: list[Load] = []
    asking = threading.Thread(
        target=lambda: met.append(load(server.port, http_request(server.port, "/invocations", BODY), clients=4))
    )
    asking.start()
    server.wait_until(lambda: samples(server, "requests_total").get(("tiny", "200", "1"), 0) > 50)
    assert server.end() == 0
    asking.join(20)
    assert len(met[0].seconds) > 50
    assert met[0].failed == 0


def test_clients_that_keep_asking_while_it_ends_are_told_so(tiny: Workspace, serve: Serve) -> None:
    """Each hears `Connection: close` with its last answer; a connection that is cut meets whoever sent something."""
    server = serve("tiny")
    last: list[str | None] = []

    def ask() -> None:
        with contextlib.closing(_connection(server)) as connection:
            connection.connect()
            while True:
                connection.request("POST", "/invocations", BODY, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200 or answer.getheader("connection") == "close":
                    last.append(answer.getheader("connection"))
                    return

    asking = [threading.Thread(target=ask) for _ in range(6)]
    for thread in asking:
        thread.start()
    server.wait_until(lambda: samples(server, "requests_total").get(("tiny", "200", "1"), 0) > 50)
    assert server.end() == 0
    for thread in asking:
        thread.join(20)
    assert last == ["close"] * 6


def test_workers_share_the_work_and_the_count_and_are_started_again(tiny: Workspace, serve: Serve) -> None:
    server = serve("tiny", arguments=("--workers", "2"))
    first, second = server.workers()
    met = load(server.port, http_request(server.port, "/invocations", BODY), count=400, clients=8)
    assert met.failed == 0

    def counted() -> float:
        return samples(server, "requests_total").get(("tiny", "200", "1"), 0)

    server.wait_until(lambda: counted() == 400)
    first.kill()
    server.wait_until(lambda: f"Child process [{first.pid}] died" in server.printed)
    server.wait_until(lambda: len(server.workers()) == 2 and first not in server.workers())
    assert second in server.workers()
    server.wait_until(lambda: server.post("/invocations", GOOD).status == 200)
    server.wait_until(lambda: counted() == 401)
    assert server.end() == 0


def test_workers_count_together_what_a_caller_sends(tiny: Workspace, serve: Serve) -> None:
    server = serve("tiny", arguments=("--workers", "2", "--rate", "20"))
    time.sleep(1)  # the bucket is full again
    began = time.monotonic()
    met = load(server.port, http_request(server.port, "/invocations", BODY), count=200, clients=8)
    most = 20 + 20 * (time.monotonic() - began) + 1
    assert 20 <= len(met.seconds) - met.failed <= most


def test_workers_do_not_outlive_a_parent_that_was_killed(tiny: Workspace, serve: Serve) -> None:
    server = serve("tiny", arguments=("--workers", "2"))
    workers = server.workers()
    server.process.kill()
    server.process.wait()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not [one for one in alive if is_there(one)]


def test_off_loopback_a_token_is_asked_of_all_but_the_probes(tiny: Workspace, serve: Serve) -> None:
    server = serve("tiny", arguments=("--host", "0.0.0.0", "--proxy-elsewhere", "--rate", "2"))
    bearer = {"Authorization": f"Bearer {token_of(tiny, SERVE_TOKEN)}"}
    assert [server.get(path).status for path in ("/ping", "/health", "/metrics", "/v2")] == [200, 200, 401, 401]
    refused = server.post("/invocations", GOOD, Authorization="Bearer wrong")
    assert (refused.status, list(refused.json), refused.headers["www-authenticate"]) == (401, ["error"], "Bearer")
    statuses = [server.post("/invocations", GOOD, **bearer) for _ in range(40)]
    assert statuses[0].status == 200
    limited = [reply for reply in statuses if reply.status == 429]
    assert limited
    assert limited[0].headers["retry-after"] == "1"
    assert token_of(tiny, SERVE_TOKEN) not in server.printed


@pytest.mark.wide  # with certificates of clients below
def test_over_tls(tiny: Workspace, serve: Serve, tmp_path: Path) -> None:
    certificate(tmp_path)
    arguments = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    context = ssl.create_default_context(cafile=tmp_path / "cert.pem")
    server = serve("tiny", arguments=arguments, tls=context)
    assert server.post("/invocations", GOOD).status == 200


def test_with_certificates_of_clients_no_token_is_asked(tiny: Workspace, serve: Serve, tmp_path: Path) -> None:
    certificate(tmp_path)
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    context = ssl.create_default_context(cafile=cert)
    context.load_cert_chain(cert, key)
    grpc_port = ports.any_free([])
    reach = ("--host", "0.0.0.0", "--proxy-elsewhere")
    arguments = (*reach, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", cert)
    server = serve("tiny", arguments=(*arguments, "--grpc-port", str(grpc_port)), tls=context)
    assert server.post("/invocations", GOOD).status == 200
    stranger = replace(server, tls=ssl.create_default_context(cafile=cert))
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
        stranger.get("/ping")
    root, chain, own = (Path(path).read_bytes() for path in (cert, cert, key))
    known = grpc.ssl_channel_credentials(root, own, chain)
    assert call_whole(grpc_port, "ModelInfer", typed_request(), known)[0].model_name == "tiny"
    with pytest.raises(grpc.RpcError):
        call_whole(grpc_port, "ServerLive", message("ServerLiveRequest")(), grpc.ssl_channel_credentials(root))


def outcome(workspace: Workspace, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a server that should not start."""
    log = workspace.root / "server.log"
    with log.open("wb") as printing:
        command = ["-m", "tasks.serve", str(workspace.root), "tiny", *arguments]
        process = warm.start_python(command, dict(os.environ), ROOT, printing)
    try:
        return process.wait(60), log.read_text()
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tls-cert", "cert.pem"), "expected both --tls-cert and --tls-key: TLS needs both"),
        (("--tls-cert", "none.pem", "--tls-key", "none.pem"), "expected a file in PEM format"),
        (("--host", "0.0.0.0"), "--host: got 0.0.0.0, which other machines reach, expected a loopback address"),
    ],
)
def test_half_of_tls_and_a_reach_without_nginx_do_not_start(
    tiny: Workspace, arguments: tuple[str, ...], said: str
) -> None:
    code, printed = outcome(tiny, *arguments)
    assert code == 2
    assert said in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("option", ["--port", "--grpc-port"])
def test_a_port_that_is_taken_is_told_with_its_holder_and_its_option(tiny: Workspace, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        others = [] if option == "--port" else ["--port", str(ports.any_free([]))]
        code, printed = outcome(tiny, *others, option, str(port))
    assert code == 1
    assert f"port {port} is taken by " in printed
    assert f"(pid {os.getpid()}): name another by {option}\n" in printed


def test_a_deadline_that_cannot_be_met_is_said(tiny: Workspace, serve: Serve) -> None:
    server = serve("tiny")
    assert server.post("/invocations", GOOD, **{"X-Loopline-Timeout-Ms": "0"}).status == 504
    assert server.post("/invocations", GOOD, **{"X-Loopline-Timeout-Ms": "10000"}).status == 200
    assert server.post("/invocations", GOOD, **{"X-Loopline-Timeout-Ms": "soon"}).status == 400


def _connection(server: LiveServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)


def _is_refused(server: LiveServer) -> bool:
    try:
        server.get("/ping")
    except ConnectionRefusedError:
        return True
    return False

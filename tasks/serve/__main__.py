"""Serve: `python -m tasks.serve ROOT PROJECT... --port 8000`; `loopline serve` is the same with names looked up."""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging.config
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from models.errors import LooplineError, StoreError, UsageError
from models.project_spec.reader import read_spec
from tasks.host import ports, stores
from tasks.host.http_guard import check_reach, is_loopback
from tasks.host.workspace import Workspace
from tasks.release import deployment
from tasks.release.controller import ReleaseController, follow, guard
from tasks.release.settings import MOST_CONNECTIONS, ServerSettings
from tasks.release.shared_state import SharedNumber
from tasks.serve import logs
from tasks.serve.compactor import compacting
from tasks.serve.metric_files import share_between_workers

DRAIN_S = 20
END_S = 1.0
FIRST_LOOK_S = 1.0


def serve(settings: ServerSettings) -> None:
    """Serve until a signal ends the process; then answer the open requests and return.

    Raises:
        UsageError: The TLS or port settings are invalid, or the host address cannot be bound.
        StoreError: Another process uses a port.
    """
    import uvicorn

    check(settings)
    _claim(settings)
    logging.config.dictConfig(logs.config())
    settings.workspace.make()
    stores.configure(settings.workspace)
    stop = threading.Event()
    leads = [ReleaseController(settings, project) for project in settings.projects]
    exchanges = [lead.exchange for lead in leads if lead.exchange]
    acts = ((act, lead) for lead in leads for act in (follow, guard))
    threads = [threading.Thread(target=act, args=(lead, stop), daemon=True) for act, lead in acts]
    num_servers = SharedNumber(settings.servers_path)
    num_servers.set(1)
    if exchanges:
        threads.append(threading.Thread(target=deployment.follow, args=(exchanges, stop, num_servers), daemon=True))
    for thread in threads:
        thread.start()
    settings = replace(settings, logs={**_rules(settings), **settings.logs})
    began = time.monotonic()
    for lead in leads:  # do not wait longer for a registry that is away: the last release is known
        lead.looked.wait(max(0.0, began + FIRST_LOOK_S - time.monotonic()))
    settings.hand_on()
    if settings.workers > 1:
        share_between_workers(settings.metrics_folder)
        settings.rates_path.unlink(missing_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it once more when it has drained
    try:
        with compacting(settings):
            uvicorn.run("tasks.serve.app:application", **_options(settings))
    finally:
        stop.set()
        for thread in threads:
            thread.join(END_S)


def check(settings: ServerSettings) -> None:
    """Check the address, TLS and port settings; warn if other machines can reach the server without TLS.

    Raises:
        UsageError: Other machines reach the address, and no proxy is said to stand before it; the TLS certificate or
            its key is not set, a TLS file does not exist, or HTTP and gRPC have the same port.
    """
    check_reach(settings.host, "--host", has_proxy=settings.proxy_elsewhere, cure="--proxy-elsewhere")
    if settings.grpc_port == settings.port:
        raise UsageError(f"--grpc-port {settings.grpc_port}: HTTP listens there: name another")
    files = {"--tls-cert": settings.tls_cert, "--tls-key": settings.tls_key, "--tls-client-ca": settings.tls_client_ca}
    names = {name for name, path in files.items() if path}
    if names and not {"--tls-cert", "--tls-key"} <= names:
        raise UsageError(f"got {', '.join(sorted(names))}, expected both --tls-cert and --tls-key: TLS needs both")
    for name, path in files.items():
        if path and not Path(path).is_file():
            raise UsageError(f"{name}: got {path!r}, expected a file in PEM format")
    if not names and not is_loopback(settings.host):
        logging.getLogger("loopline.serve").warning(
            "%s is reached from elsewhere without TLS: tokens can be read on the way", settings.host
        )


def _claim(settings: ServerSettings) -> None:
    """Raise an error that names the process which holds a port; uvicorn's exit code has another meaning here."""
    for option, port in (("--port", settings.port), ("--grpc-port", settings.grpc_port)):
        if not port:
            continue
        try:
            with socket.create_server((settings.host, port)):
                pass
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UsageError(
                    f"--host {settings.host}: cannot listen there ({error.strerror}): name an address of this machine, "
                    "such as 127.0.0.1"
                ) from None
            raise StoreError(f"port {port} is taken by {ports.holder(port)}: name another by {option}") from None


def _options(settings: ServerSettings) -> dict[str, Any]:
    import ssl

    return {
        "factory": True,
        "host": settings.host,
        "port": settings.port,
        "workers": settings.workers,
        "http": "httptools",
        "ws": "none",
        "loop": "uvloop",
        "log_config": logs.config(),
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": DRAIN_S,
        "limit_concurrency": MOST_CONNECTIONS,
        "ssl_certfile": settings.tls_cert,
        "ssl_keyfile": settings.tls_key,
        "ssl_ca_certs": settings.tls_client_ca,
        "ssl_cert_reqs": ssl.CERT_REQUIRED if settings.tls_client_ca else ssl.CERT_NONE,
    }


def _rules(settings: ServerSettings) -> dict[str, dict[str, Any]]:
    """Return `serve.log` of each project from its current spec in the workspace."""
    rules: dict[str, dict[str, Any]] = {}
    for name in settings.projects:
        with contextlib.suppress(LooplineError):  # the spec is missing or broken: the version's own spec applies
            spec = read_spec(settings.workspace.project(name).spec_path, (), name)
            rules |= {name: spec.serve.log.model_dump()} if spec.name == name else {}
    return rules


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m tasks.serve", description=__doc__)
    parser.add_argument("root", type=Path, help="The workspace.")
    parser.add_argument("projects", nargs="*", help="Registered models; without any, those whose specs say `up`.")
    parser.add_argument("--host", default="127.0.0.1", help="Where to listen; off loopback a token is asked.")
    parser.add_argument("--proxy-elsewhere", action="store_true", help="A proxy on another machine asks this one.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--grpc-port", type=int, default=0, help="Of the Open Inference Protocol; 0 for none.")
    parser.add_argument("--name", action="append", default=[], help="A further Host name, such as a proxy's.")
    parser.add_argument("--tls-cert", help="The server's certificate with its chain, PEM.")
    parser.add_argument("--tls-key", help="Its key, PEM.")
    parser.add_argument("--tls-client-ca", help="The authority of the clients' certificates; then no token is asked.")
    parser.add_argument("--needs-token", action="store_true", help="Ask for a token on loopback too.")
    parser.add_argument("--rate", type=float, help="Requests a second for each token.")
    args = vars(parser.parse_args())
    root, projects, names = args.pop("root").resolve(), tuple(args.pop("projects")), tuple(args.pop("name"))
    projects = projects or _projects_to_serve(root)
    try:
        serve(ServerSettings(str(root), projects, names=names, **args))
    except LooplineError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def _projects_to_serve(root: Path) -> tuple[str, ...]:
    from tasks.platform.services import projects_to_serve

    return tuple(projects_to_serve(Workspace(root)))


if __name__ == "__main__":
    main()

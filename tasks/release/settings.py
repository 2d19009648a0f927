"""The settings of a server; the parent process passes them to the worker processes in the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasks.host.workspace import Workspace

VARIABLE = "LOOPLINE_SERVE"
MOST_CONNECTIONS = 1000
"""Connections of a worker, of each protocol. While HTTP has more, each request gets 503; nginx opens fewer."""


@dataclass(frozen=True)
class ServerSettings:
    """The settings of a server.

    Args:
        root: The workspace's folder.
        projects: Names of the served models, and of their state folders.
        host: The address that the server listens on.
        port: The HTTP port.
        workers: The number of worker processes.
        grpc_port: The gRPC port; 0 for none.
        most_bytes: Maximum bytes of a request body.
        names: Additional Host names, such as a proxy's.
        tls_cert: Path of the server's certificate with its chain; None: no TLS.
        tls_key: Path of the certificate's key.
        tls_client_ca: Path of the certificate authority of the clients' certificates; None: clients send a token.
        rate: Requests a second for each token, over all workers and servers; None: see `tasks.serve.access`.
        proxy_elsewhere: Whether `host` may be an address that other machines reach, since a proxy on one of them asks.
        needs_token: Whether loopback requires a token too, as for every server that the platform starts.
        logs: `serve.log` of the projects whose spec is available; the others use that of the answering version.
    """

    root: str
    projects: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    grpc_port: int = 0
    most_bytes: int = 16 << 20
    names: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    rate: float | None = None
    proxy_elsewhere: bool = False
    needs_token: bool = False
    logs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def workspace(self) -> Workspace:
        """The workspace."""
        return Workspace(Path(self.root))

    def state(self, project: str) -> Path:
        """Return a project's folder under `.loopline/projects/`."""
        return self.workspace.state / "projects" / project

    def release_path(self, project: str) -> Path:
        """Return the path of the release that the workers follow."""
        return self.state(project) / "serving" / "release.json"

    @property
    def metrics_folder(self) -> Path:
        """The folder in which the workers share their metrics, one per port."""
        return self.workspace.state / "serving" / f"metrics-{self.port}"

    @property
    def rates_path(self) -> Path:
        """The file in which the workers count each client's requests together."""
        return self.workspace.state / "serving" / f"rates-{self.port}"

    @property
    def servers_path(self) -> Path:
        """The file with the number of live servers that divide the rate limit."""
        return self.workspace.state / "serving" / f"servers-{self.port}"

    def hand_on(self) -> None:
        """Store the settings in the environment for the worker processes."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def handed(cls) -> ServerSettings:
        """Return the settings that `hand_on` stored."""
        document = json.loads(os.environ[VARIABLE])
        return cls(**{**document, "projects": tuple(document["projects"]), "names": tuple(document["names"])})

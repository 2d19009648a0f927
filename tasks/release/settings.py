"""The settings of a server; its worker processes get them in the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasks.host.workspace import Workspace

VARIABLE = "LOOPLINE_SERVE"


@dataclass(frozen=True)
class ServerSettings:
    """The settings with which a server was started.

    Args:
        root: The workspace.
        projects: Names of served models, and of the folders of their state.
        host: Where it listens.
        port: Port for HTTP.
        workers: Processes that answer.
        grpc_port: 0 for none.
        most_bytes: Most bytes of the body of a request.
        names: Further Host names, such as a proxy's.
        tls_cert: Path of the server's certificate with its chain; None: no TLS.
        tls_key: Path of its key.
        tls_client_ca: Path of the certificate of the authority that clients' certificates must be signed by; None:
            clients send a token.
        rate: Requests a second for each token, of all workers; None: see `tasks.serve.access`.
        needs_token: Whether a token is required on loopback too, as of all that the platform starts.
        logs: `serve.log` of the projects whose spec was readable; for others that of the version that answers counts.
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
    needs_token: bool = False
    logs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def workspace(self) -> Workspace:
        """The workspace of the server."""
        return Workspace(Path(self.root))

    def state(self, project: str) -> Path:
        """A project's folder under `.loopline/projects/`."""
        return self.workspace.state / "projects" / project

    def release_path(self, project: str) -> Path:
        """The document that workers follow."""
        return self.state(project) / "serving" / "release.json"

    @property
    def metrics_folder(self) -> Path:
        """The folder in which the workers of a server share their metrics, by port."""
        return self.workspace.state / "serving" / f"metrics-{self.port}"

    @property
    def rates_path(self) -> Path:
        """The file in which the workers count the requests of each caller together."""
        return self.workspace.state / "serving" / f"rates-{self.port}"

    def hand_on(self) -> None:
        """Put them where worker processes find them."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def handed(cls) -> ServerSettings:
        """Return the settings that `hand_on` put into the environment."""
        document = json.loads(os.environ[VARIABLE])
        return cls(**{**document, "projects": tuple(document["projects"]), "names": tuple(document["names"])})

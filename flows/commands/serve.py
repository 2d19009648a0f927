"""`loopline serve`: serves the champions over HTTP, and optionally over gRPC."""

from __future__ import annotations

from typing import Any

import click

from flows.console import options
from tasks.host.workspace import Workspace


@click.command()
@click.argument("projects", nargs=-1, required=True, metavar="PROJECT...", shell_complete=options.complete_project)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen at; off loopback a token is required."
)
@click.option("--proxy-elsewhere", is_flag=True, help="A proxy on another machine asks this one; see the guide.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(1, 65535), help="Of HTTP.")
@click.option("--grpc-port", default=0, type=click.IntRange(0, 65535), help="Also answer over gRPC, on this port.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes that answer.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="A further allowed Host name, such as a proxy's.")
@click.option("--tls-cert", metavar="FILE", help="The server's certificate with its chain, PEM.")
@click.option("--tls-key", metavar="FILE", help="The certificate's key, PEM.")
@click.option(
    "--tls-client-ca", metavar="FILE", help="Authenticate clients by certificates of this authority, not by token."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Rate limit: requests a second for each token.")
def command(projects: tuple[str, ...], names: tuple[str, ...], **options: Any) -> None:
    """Serve the champion of each PROJECT until ended; promotions take effect by themselves.

    Example: loopline serve penguins --port 8000

    Other machines reach it through nginx on this one, with infra/nginx/loopline.conf.

    Example: loopline serve penguins flights --port 8010 --name ml.example.org --workers 4
    """
    from tasks.release.settings import ServerSettings
    from tasks.serve.__main__ import serve

    workspace = Workspace.find()
    chosen = [workspace.project(name) for name in projects]
    specs = [project.spec() for project in chosen]
    logs = {spec.name: spec.serve.log.model_dump() for spec in specs}
    scheme = "https" if options["tls_cert"] else "http"
    address = f"{', '.join(logs)}: {scheme}://{options['host']}:{options['port']}, /openapi.json says how"
    over_grpc = f"; gRPC at port {options['grpc_port']}" if options["grpc_port"] else ""
    click.echo(f"{address}{over_grpc}; /ping says when", err=True)
    serve(ServerSettings(str(workspace.root), tuple(logs), names=names, logs=logs, **options))

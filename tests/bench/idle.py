"""What a platform at rest costs: CPU seconds a minute and memory (PSS) of all its processes, by service.

`python -m tests.bench.idle FOLDER` makes a workspace with 25 small projects in the folder, some with a champion, brings
the platform up, waits until it is at rest, measures, and takes it down. CPU and memory hold on a busy machine.
`PYTHONPATH=CLONE CLONE/.venv/bin/python idle.py FOLDER`, with a copy of this file, measures another commit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from tasks.host.workspace import Workspace

PROJECTS = 25
CHAMPIONS = 5
SETTLE_S = 120.0
SPAN_S = 180.0
SPEC = "data: {{source: data.csv, target: y}}\nmonitor: {{schedule: {schedule}}}\n"
OURS = ("PREFECT_", "MLFLOW_", "LOOPLINE_", "DVC_", "OPTUNA_")
CROWN = """\
import sys
from pathlib import Path
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tests.registered import register_served
workspace = Workspace(Path(sys.argv[1]))
stores.configure(workspace)
for name in sys.argv[2:]:
    register_served(workspace, name, "1")
    open_registry(workspace, name).promote("1", None, reason="bench")
"""
SEEN = """\
import os, sys, time
from pathlib import Path
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.platform.idle_monitoring import remember, stats_of
workspace = Workspace(Path(sys.argv[1]))
stores.configure(workspace)
for project in workspace.projects():
    for path in project.folder.iterdir():
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    remember(project.state(project.folder.name), stats_of(project))
"""
"""As if a monitoring run had seen each project's champion and files."""


@dataclass
class Idle:
    """What a platform at rest uses: CPU seconds a minute and MB (PSS), by service and in all."""

    cpu_s: float = 0.0
    pss_mb: float = 0.0
    services: dict[str, tuple[float, float]] = field(default_factory=dict)
    up_cpu_s: float = 0.0
    up_again_cpu_s: float = 0.0


def measured(home: Path, schedule: str | None = None, settle_s: float = SETTLE_S, span_s: float = SPAN_S) -> Idle:
    """Make the workspace, bring its platform up, measure it at rest, and take it down."""
    names = [f"p{number:02d}" for number in range(PROJECTS)]
    for name in names:
        (home / "projects" / name).mkdir(parents=True)
        (home / "projects" / name / "project.yaml").write_text(SPEC.format(schedule=schedule or "null"))
        (home / "projects" / name / "data.csv").write_text("x,y\n1,2\n")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    environ["LOOPLINE_HOME"] = str(home)
    subprocess.run([sys.executable, "-c", CROWN, str(home), *names[:CHAMPIONS]], env=environ, check=True)
    if schedule:
        subprocess.run([sys.executable, "-c", SEEN, str(home)], env=environ, check=True)
    loopline = str(Path(sys.executable).with_name("loopline"))
    idle = Idle()
    try:
        idle.up_cpu_s = _cpu_of([loopline, "up"], environ)
        time.sleep(settle_s)
        before = _by_service(home)
        time.sleep(span_s)
        after = _by_service(home)
        idle.up_again_cpu_s = _cpu_of([loopline, "up"], environ)
    finally:
        subprocess.run([loopline, "down", "--force"], env=environ, check=True, capture_output=True)
    for name, (cpu_s, pss_mb) in sorted(after.items()):
        idle.services[name] = (cpu_s - before.get(name, (0.0, 0.0))[0]) / span_s * 60, pss_mb
    idle.cpu_s, idle.pss_mb = (sum(figures[part] for figures in idle.services.values()) for part in (0, 1))
    return idle


def _cpu_of(command: list[str], environ: dict[str, str]) -> float:
    before = os.times()
    subprocess.run(command, env=environ, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _by_service(home: Path) -> dict[str, tuple[float, float]]:
    """Return CPU seconds so far, with those of children that have ended, and MB, by service."""
    daemon = psutil.Process(int((Workspace(home).platform / "supervisord.pid").read_text()))
    found = {"supervisord": _own(daemon)}
    for service in daemon.children():
        name = json.loads(service.environ().get("LOOPLINE_SERVICE", "{}")).get("service") or service.cmdline()[-1]
        parts = [_own(process) for process in (service, *service.children(recursive=True))]
        found[name] = sum(cpu_s for cpu_s, _ in parts), sum(pss_mb for _, pss_mb in parts)
    return found


def _own(process: psutil.Process) -> tuple[float, float]:
    times = process.cpu_times()
    cpu_s = times.user + times.system + times.children_user + times.children_system
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return cpu_s, sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def main() -> None:
    """Measure and print; the load is printed too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--schedule", help="of monitoring, such as 'every 2 minutes'")
    parser.add_argument("--settle-s", type=float, default=SETTLE_S)
    parser.add_argument("--span-s", type=float, default=SPAN_S)
    args = parser.parse_args()
    idle = measured(args.folder.resolve(), args.schedule, args.settle_s, args.span_s)
    for name, (cpu_s, pss_mb) in idle.services.items():
        print(f"{name:12} {cpu_s:6.2f} CPU-s a minute {pss_mb:7.0f} MB")
    print(f"{'all':12} {idle.cpu_s:6.2f} CPU-s a minute {idle.pss_mb:7.0f} MB; load {os.getloadavg()[0]:.1f}")
    print(json.dumps(asdict(idle)))


if __name__ == "__main__":
    main()

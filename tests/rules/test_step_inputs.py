"""A step reads no file that its key does not name: a tracer of system calls sees all that a loop with own code opens.

The own code reads a file of its own in each stage, in each way in which code reads files. Each file is named after the
only steps that may count it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from models.pipeline.records import StepRecord
from models.pipeline.steps import BY_NAME
from models.project_spec.own_reads import ROOT
from tasks.host import stores
from tasks.host.workspace import Project, Workspace
from tasks.loop.step_cache import StepCache
from tests import warm
from tests.environment import QUIET
from tests.traced import NETWORK, attached, can_trace, files_read, places_outside

SPEC = """\
name: tiny
reads: [native.parquet]
goal: {metric: "./metric.py:cost", direction: minimize}
data: {source: "./source.py:load", target: y, features: {make: "./features.py:make"}}
model: {net: "./net.py:Net", arguments: {init: [[init.json]], folder: pretrained}}
search: {trials: 1, epochs: 1, space: {train.lr: {low: 0.03, high: 0.1, log: true}}}
train: {epochs: 1, batch: 64, threads: 1, loss: "./loss.py:loss"}
judge: {min_samples: 10, margin: 0.5}
"""
CODE = {
    "source.py": """
import csv, pathlib
import pandas as pd
here = pathlib.Path(__file__).parent
def load():
    tables = [pd.read_csv(path) for path in sorted((here / "tables").glob("*.csv"))]
    (here / "cache.json").write_text("[]")
    (here / "cache.json").read_text()
    return pd.concat(tables)
""",
    "features.py": """
import importlib, json, pathlib
import pyarrow.parquet
import own_constants
here = pathlib.Path(__file__).parent
def make(frame):
    late = importlib.import_module("late")
    native = pyarrow.parquet.read_table(here / "native.parquet")
    scale = json.loads((here / "scale.json").read_text())
    return frame.assign(z=frame.x * scale * own_constants.ONE * late.ONE + native.num_rows)
""",
    "own_constants.py": "ONE = 1\n",
    "late.py": "import pathlib\nONE = float((pathlib.Path(__file__).parent / 'late.txt').read_text())\n",
    "net.py": """
import json, os, pathlib
import torch
here = pathlib.Path(__file__).parent
class Net(torch.nn.Module):
    def __init__(self, sizes, init="", folder=""):
        super().__init__()
        self.out = torch.nn.Linear(sizes.num_numeric, sizes.num_outputs)
        self.scale = json.loads((here / init[0][0]).read_text()) + len(os.listdir(here / folder))
    def forward(self, numeric, **_):
        shift = float((here / "forward.txt").read_text())
        return self.out(numeric) * self.scale + shift
""",
    "loss.py": """
import pathlib
def loss(output, target):
    power = float((pathlib.Path(__file__).parent / "loss.txt").read_text())
    return (output.squeeze(-1) - target).abs() ** power
""",
    "metric.py": """
import pathlib
from concurrent.futures import ThreadPoolExecutor
here = pathlib.Path(__file__).parent
def cost(target, prediction):
    with ThreadPoolExecutor(1) as pool:
        weight = float(next(pool.map(pathlib.Path.read_text, [here / "metric.txt"])))
    return float(((target - prediction) ** 2).mean()) * weight
""",
}
FILES = {
    "scale.json": "2",
    "init.json": "1",
    **dict.fromkeys(("late.txt", "forward.txt", "loss.txt", "metric.txt"), "1"),
}
RUN = """
import os
from pathlib import Path
from tests import warm
from tests.traced import wait_for_tracer
wait_for_tracer()
warm.keep_ranks_ready()
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.loop.lifecycle import open_stage
from tasks.loop.loop import StepResult
from tasks.steps import export, ingest, judge, prepare, search, train
workspace = Workspace(Path(os.environ["LOOPLINE_HOME"]))
stores.configure(workspace)
with open_stage(workspace.project("tiny")) as loop, loop.rank_pool:
    ingest.ingest(loop)
    prepare.prepare(loop)
    loop.carry_out("validate-prepared", lambda *_: StepResult(result={"single_predictors": {}}))  # runs no own code
    for act in (search.search, train.fit, export.export, judge.judge):
        act(loop)
"""
STEPS = ("ingest", "prepare", "search", "train", "export", "judge")
"""The steps that run own code."""
TRAINING = {"init.json", "forward.txt", "loss.txt", "metric.txt", "pretrained/weights.bin"}
EXPECTED = {
    "ingest": {"tables/a.csv", "tables/b.csv"},
    "prepare": {"native.parquet", "scale.json", "late.txt", "late.py"},
    "search": TRAINING,
    "train": TRAINING,
    "export": {"init.json", "forward.txt", "pretrained/weights.bin"},
    "judge": {"metric.txt"},
}
"""What changes what a step computes, so must owe it: by the own code above."""

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here"),
]


def write(project: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    for folder in ("tables", "pretrained"):
        (project / folder).mkdir(parents=True)
    for name, content in {**CODE, **FILES, "project.yaml": SPEC, "pretrained/weights.bin": "w"}.items():
        (project / name).write_text(content)
    for number, name in enumerate("ab"):
        rows = "".join(f"{i / 7},{i % 5 + number / 10}\n" for i in range(number, 200, 2))
        (project / "tables" / f"{name}.csv").write_text(f"x,y\n{rows}")
    pyarrow.parquet.write_table(pa.table({"x": [1.0]}), project / "native.parquet")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, set[Path]]]:
    """A project after its loop, and the files below its folder that each step opened to read."""
    root = tmp_path_factory.mktemp("traced")
    write(root / "projects" / "tiny")
    environment = {**os.environ, **QUIET, "LOOPLINE_HOME": str(root)}
    with Path(os.devnull).open("rb") as nothing, (root / "printed").open("wb") as printed:
        files = nothing.fileno(), printed.fileno(), printed.fileno()
        process = warm.server().start("-c", (RUN,), environment, ROOT, files)
    try:
        with attached(process.pid, ("open", "openat", *NETWORK), root / "trace", "-ttt"):
            code = process.wait(240)
    finally:
        process.kill()
    assert code == 0, (root / "printed").read_text()
    calls = files_read(root / "trace")
    project = Workspace(root).project("tiny")
    opened: dict[str, set[Path]] = {}
    begin = 0.0
    for record in sorted(records_of(project).values(), key=lambda record: record.finished):
        paths = {path for at, path in calls if begin <= at <= record.finished}
        begin = record.finished
        opened[record.step] = {path for path in paths if path.is_relative_to(project.folder) and path.is_file()}
    return project, opened


@pytest.fixture(autouse=True)
def _environment(ran: tuple[Project, dict[str, set[Path]]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_HOME", str(ran[0].workspace.root))
    stores.configure(ran[0].workspace)


def records_of(project: Project) -> dict[str, StepRecord]:
    records = StepCache(project, project.spec()).records
    return {step: record for step in BY_NAME if (record := records.latest(step))}


def owed(project: Project) -> list[str]:
    planned = StepCache(project, project.spec()).plan()
    return [item.step for item in planned if item.step in STEPS and item.state == "run"]


def named(project: Project, record: StepRecord) -> set[Path]:
    """The files that the parts of a record's key name, and those of its listed folders."""
    paths: set[Path] = set()
    for part in record.parts:
        kind, _, name = part.partition(":")
        path = project.folder / name
        if kind in ("file", "read", "code"):
            paths |= {*path.rglob("*")} if path.is_dir() else {path}
    return paths


@pytest.mark.parametrize("step", STEPS)
def test_a_step_names_each_file_that_it_opens(ran: tuple[Project, dict[str, set[Path]]], step: str) -> None:
    project, opened = ran
    # Loopline itself looks whether loaded code was edited.
    ours = (project.data, project.folder / "cache.json", project.spec_path, *project.folder.glob("*.py"))
    read = {path for path in opened[step] if not any(path.is_relative_to(own) for own in ours)}
    told = {project.folder / name for name in EXPECTED[step]}
    assert {path for path in told if path.suffix != ".py" and path.parent.name != "pretrained"} <= read, "all is shown"
    assert read - named(project, records_of(project)[step]) == set()


def test_no_step_looks_anything_up(ran: tuple[Project, dict[str, set[Path]]]) -> None:
    """No library calls home (`test_no_calls_home.py`): nobody has configured an address for this loop."""
    assert places_outside(ran[0].workspace.root / "trace") == set()


def test_a_file_owes_the_steps_that_read_it_and_no_other(ran: tuple[Project, dict[str, set[Path]]]) -> None:
    project, _ = ran
    assert owed(project) == []
    done = records_of(project)
    for name in sorted(set().union(*EXPECTED.values())):
        path, before = project.folder / name, (project.folder / name).read_bytes()
        path.write_bytes(before + b" ")
        step_cache = StepCache(project, project.spec())
        again = {step for step in STEPS if step_cache.current(BY_NAME[step], done)[1] is None}
        path.write_bytes(before)
        readers = {step for step in STEPS if name in EXPECTED[step]}
        assert readers <= again <= (readers if name not in project.spec().reads else {*STEPS}), name
    assert owed(project) == [], "each file is again as it was"

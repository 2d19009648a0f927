"""Imports run one way, and what is heavy is imported only where it is used."""

import ast
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.structure.nodes import walk

HEAVY = (
    "prefect",
    "mlflow",
    "torch",
    "pandas",
    "pyarrow",
    "dvc",
    "optuna",
    "great_expectations",
    "sklearn",
    "matplotlib",
    "fsspec",
    "s3fs",
    "botocore",
    "tasks.operations.reap",
    "torch.distributed.tensor",
    "torch._dynamo",
    "sympy",
)
SPEC = "data:\n  source: data.csv\n  target: y\n"


def loaded_after(code: str, root: Path, **environment: str) -> set[str]:
    """The heavy packages that a fresh process has imported after running `code`."""
    tell = f"import json, sys; print('\\n' + json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tell}"],
        cwd=root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_contracts_hold(root: Path) -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def imported(tree: ast.Module) -> set[str]:
    """Every module that this one may import, also inside functions and for types alone."""
    names = set()
    for node in walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def circle(trees: dict[Path, ast.Module]) -> list[str]:
    """The modules of one circle of imports, each importing the one before; empty if there is none."""
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): tree for path, tree in trees.items()}
    try:
        TopologicalSorter({name: imported(tree) & modules.keys() for name, tree in modules.items()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_one_another_in_a_circle(trees: dict[Path, ast.Module]) -> None:
    """Neither inside functions, nor for types alone: of two such modules none can be read or tested by itself."""
    assert circle(trees) == []


def test_a_circle_inside_functions_and_of_types_is_seen() -> None:
    lines = {
        "models/a.py": "def ask():\n    from models import b",
        "models/b.py": "if TYPE_CHECKING:\n    from models.c import C",
        "models/c.py": "import models.a",
    }
    names = circle({Path(path): ast.parse(text) for path, text in lines.items()})
    assert set(names) == {"models.a", "models.b", "models.c"}


def test_the_command_line_imports_nothing_heavy(root: Path) -> None:
    assert loaded_after("import flows.cli", root) == set()


LOOKS = [["--help"], ["run", "--help"], ["status"], ["plan", "tiny"], ["schema"], ["env"]]


def test_looking_imports_nothing_heavy(root: Path, tmp_path: Path) -> None:
    """One after the other in a process: the assertion names the first that imports something."""
    project = tmp_path / "projects" / "tiny"
    project.mkdir(parents=True)
    (project / "project.yaml").write_text(SPEC)
    (project / "data.csv").write_text("x,y\n1,a\n")
    code = (
        "import sys\nfrom flows.cli import loopline\n"
        f"for arguments in {LOOKS!r}:\n"
        "    loopline(arguments, standalone_mode=False)\n"
        f"    assert {{*{HEAVY!r}}}.isdisjoint(sys.modules), arguments"
    )
    assert loaded_after(code, root, LOOPLINE_HOME=str(tmp_path)) == set()


def test_a_database_is_asked_without_pandas(root: Path, tmp_path: Path) -> None:
    """Whether a query has new rows is asked by each run, each plan and the trigger."""
    project = tmp_path / "projects" / "tiny"
    project.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(project / "shop.db")) as connection:
        connection.executescript("create table orders (x, y, at); insert into orders values (1, 'a', 7)")
    source = '{sql: select * from orders, at: "sqlite:///shop.db", cursor: at}'
    (project / "project.yaml").write_text(f"data:\n  source: {source}\n  id: x\n  target: y\n")
    code = "from flows.cli import loopline\nloopline(['plan', 'tiny'], standalone_mode=False)"
    assert loaded_after(code, root, LOOPLINE_HOME=str(tmp_path)) == {"pyarrow"}


def test_a_flow_module_imports_prefect_and_little_else(root: Path) -> None:
    loaded = loaded_after("import flows.train", root)
    assert (
        loaded & {"torch", "mlflow", "great_expectations", "pandas", "dvc", "optuna", "sklearn", "matplotlib"} == set()
    )


def test_a_loop_imports_no_torch(root: Path) -> None:
    """Only its ranks and other children do: the steps' own imports, also those inside their functions, need none."""
    steps = [ast.parse(path.read_text()) for path in (root / "tasks" / "steps").glob("*.py")]
    taken = {node.module for step in steps for node in walk(step) if isinstance(node, ast.ImportFrom)}
    ours = sorted(name for name in taken if name and name.split(".")[0] in ("models", "tasks"))
    assert len(ours) > 50
    assert "torch" not in loaded_after("\n".join(f"import {name}" for name in ours), root)


def test_the_pages_import_nothing_heavy(root: Path) -> None:
    """The server of the pages runs all day, so that it leaves numbers to other processes."""
    code = "import tasks.dashboard.app, sys\nassert not {'numpy', 'onnxruntime'} & {*sys.modules}"
    assert loaded_after(code, root) == set()


ONE_RANK = """
from pathlib import Path
import models.training.agent, models.distributed.forkserver
from models.data.preparation import Preparation
from models.distributed.world import World
from models.planner.epoch_work import epoch_s
from models.training.rank import run_job
from tests.tiny_jobs import job_maker
job = job_maker(Path(FOLDER))(arguments={"numeric_embedding": "periodic"}, epochs=1)
Preparation.load(job.prepared).model_copy(update={"rows": {"train": 64}}).save(job.prepared)
assert epoch_s(job.as_json()) > 0
run_job(job, lambda epoch: True, World(), 0)
"""


def test_a_rank_imports_no_tool_of_the_platform(root: Path, tmp_path: Path) -> None:
    """Nor do a training on one rank and the count of an epoch's work import torch's compiler or DTensors."""
    assert loaded_after(ONE_RANK.replace("FOLDER", repr(str(tmp_path))), root) == {"torch", "pyarrow"}

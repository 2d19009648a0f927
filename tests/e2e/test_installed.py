"""Loopline from a wheel, where every folder that Python may search has a team's own packages with the names of ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.running import Ended, eventually

ROOT = Path(__file__).parents[2]
SOURCES = (
    "flows",
    "tasks",
    "models",
    "examples",
    "infra",
    "pyproject.toml",
    "requirements.lock",
    "requirements.estimators.lock",
    "requirements.kubernetes.lock",
    "README.md",
    "LICENSE",
)
LARGEST = 2_400_000
"""Bytes of a wheel without its site, which has the rest of 5 MB (`tests/contract/test_built_site.py`)."""
OURS = ("models", "tasks", "flows")
MESSAGE = "a package of the team"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def built(source: Path, into: Path, target: str = "wheel") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    return subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the clone with a site, which git does not hold."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, folder / name)
        else:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "site"))
    (folder / "flows" / "site").mkdir()
    (folder / "flows" / "site" / "index.html").write_text("<html>the site</html>")
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    outcome = built(source, folder)
    assert outcome.returncode == 0, outcome.stderr
    return next(folder.glob("*.whl"))


class Installed:
    """A workspace of a team, beside an environment that holds the wheel."""

    def __init__(self, program: Path, home: Path) -> None:
        self.program, self.home = program, home
        hostile = home / "elsewhere"
        for folder in (home, hostile):
            for name in OURS:
                (folder / name).mkdir(parents=True)
                (folder / name / "__init__.py").write_text(f"raise RuntimeError('{MESSAGE}')\n")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOPLINE_", "PREFECT_"))}
        self.environment = {**kept, "HOME": str(home / "home"), "PYTHONPATH": f"{hostile}{os.pathsep}."}

    def __call__(self, *arguments: str) -> Ended:
        command = [str(self.program), *arguments]
        outcome = subprocess.run(
            command, cwd=self.home, env=self.environment, capture_output=True, text=True, check=False
        )
        assert MESSAGE not in outcome.stdout + outcome.stderr
        return Ended(outcome.returncode, outcome.stdout, outcome.stderr)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The dependencies come from the environment of the tests; Loopline comes from the wheel alone."""
    folder = tmp_path_factory.mktemp("team")
    venv.create(folder / ".venv", with_pip=False)
    python = str(folder / ".venv" / "bin" / "python")
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*uv, "--python", python, str(wheel)], check=True)
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    # Below this folder Python reads no .pth file, so the clone itself stays out of sight.
    (Path(packages) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return Installed(folder / ".venv" / "bin" / "loopline", folder / "work")


def test_a_wheel_puts_nothing_but_loopline_on_the_path(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"loopline"}
    inside = {name.removeprefix("loopline/program/") for name in names}
    assert {f"loopline/{name}" for name in ("__init__.py", "launcher.py", "session.py", "py.typed")} <= {*names}
    locks = {"requirements.lock", "requirements.estimators.lock", "requirements.kubernetes.lock"}
    assert {*locks, "flows/site/index.html", "infra/nginx/loopline.conf"} <= inside
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "infra/team").rglob("*") if path.is_file()} <= inside
    assert any(name.startswith("examples/") for name in inside)
    assert not any("__pycache__" in name or name.startswith("tests/") for name in inside)
    assert wheel.stat().st_size <= LARGEST


def test_a_wheel_asks_for_exactly_the_locked_packages(wheel: Path) -> None:
    """No other option is needed: `uv tool install`, pipx and pip install the same packages, whatever came out since."""
    with zipfile.ZipFile(wheel) as archive:
        (notes,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        required = Parser().parsestr(archive.read(notes).decode()).get_all("Requires-Dist", [])
    for lock, extra in {"requirements.lock": "", "requirements.estimators.lock": "estimators"}.items():
        pins = re.findall(r"^[a-z0-9]\S*==[^\\\n]+", (ROOT / lock).read_text(), re.MULTILINE)
        assert wanted(pins, extra) <= wanted(required, extra)
        assert ("catboost" in dict(wanted(required, extra))) == bool(extra)


def wanted(lines: list[str], extra: str) -> set[tuple[str, str]]:
    """Return names and versions of the requirements that hold on a machine, with an extra."""
    environment = {"extra": extra, "python_full_version": "3.11.2", "sys_platform": "linux"}
    requirements = [Requirement(line) for line in lines]
    return {(r.name, str(r.specifier)) for r in requirements if not r.marker or r.marker.evaluate(environment)}


@pytest.mark.wide
def test_the_sources_build_the_same_wheel_and_hold_nothing_else(source: Path, wheel: Path, tmp_path: Path) -> None:
    assert built(source, tmp_path, "sdist").returncode == 0
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(tmp_path, filter="data")
    (unpacked,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert {path.name for path in unpacked.iterdir()} <= {*SOURCES, "PKG-INFO", ".gitignore"}
    assert built(unpacked, tmp_path / "wheel").returncode == 0
    (again,) = (tmp_path / "wheel").glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_a_build_without_the_site_is_refused(target: str, source: Path, tmp_path: Path) -> None:
    site = source / "flows" / "site" / "index.html"
    text = site.read_text()
    site.unlink()
    try:
        outcome = built(source, tmp_path / "build", target)
    finally:
        site.write_text(text)
    assert outcome.returncode != 0
    assert "`make docs`" in outcome.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", OURS)
def test_own_modules_are_started_by_their_launcher(name: str) -> None:
    """`-m MODULE` finds them in a clone alone, and a team's package of the same name before them."""
    pattern = re.compile(r'"-m",\s*(?:"(?:models|tasks|flows)\.|__name__|self\.module|module\b)')
    found = {path.relative_to(ROOT) for path in (ROOT / name).rglob("*.py") if pattern.search(path.read_text())}
    assert found <= {Path("tasks/prefect/pods.py")}, "a pod has Loopline's image, which is a clone"


def begin(installed: Installed) -> None:
    """Make the folder a team's repository; twice is harmless."""
    told = json.loads(installed("init", "--example", "table", "--docker", "--json").ok().out)
    assert "projects/churn" in [*told["written"], *told["present"]]
    assert {"loopline.txt", "dvc.yaml", "compose.yaml", "ci/loops.sh"} <= {*new_files(installed)}


def new_files(installed: Installed) -> list[str]:
    """What git would add to the team's first commit."""
    command = ["git", "ls-files", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=installed.home, check=True, capture_output=True, text=True).stdout.splitlines()


def test_commands_load_our_packages_alone(installed: Installed) -> None:
    begin(installed)
    assert installed("docs", "--print").ok().out.endswith("flows/site/index.html\n")


@pytest.mark.wide
def test_so_do_others(installed: Installed) -> None:
    begin(installed)
    assert "loop" in installed("--help").ok().out
    assert installed("new", "leavers", "--from", "projects/churn/customers.csv", "--target", "left").ok()
    assert "train" in installed("plan", "churn").ok().out
    findings = {finding["what"]: finding["state"] for finding in json.loads(installed("doctor", "--json").ok().out)}
    assert findings["imports"] == "warn", "doctor names the packages that own code cannot import"


WALK = """
import sys, click
from loopline.launcher import main
sys.argv = ["loopline", "--version"]
try:
    main()
except SystemExit:
    from flows.cli import loopline as group
def walk(command, path):
    print(" ".join(path))
    command.get_help(click.Context(command))
    for name in command.list_commands(None) if isinstance(command, click.Group) else ():
        walk(command.get_command(click.Context(command), name), [*path, name])
walk(group, ["loopline"])
"""


def test_every_command_loads_our_packages_alone(installed: Installed) -> None:
    """In one process, since each of them would cost half a second."""
    python = installed.program.with_name("python")
    walk = subprocess.run(
        [python, "-c", WALK], cwd=installed.home, env=installed.environment, capture_output=True, text=True, check=False
    )
    assert walk.returncode == 0, walk.stderr
    assert {"loopline run", "loopline serve", "loopline doctor"} <= set(walk.stdout.splitlines())


CHILD = """\
import os, pathlib, subprocess, sys
child = subprocess.run([sys.executable, "-c", "import os, sys; print(os.environ, sys.path)"], stdout=subprocess.PIPE)
pathlib.Path("child.txt").write_bytes(child.stdout)
def error(target, prediction):
    return float(abs(target - prediction).mean())
METRIC = {"value": error, "direction": "minimize", "tasks": ["regression"]}
"""


def test_a_child_of_own_code_sees_nothing_of_loopline(installed: Installed) -> None:
    (installed.home / "costs.py").write_text(CHILD)
    installed("check-row", "./costs.py:METRIC").ok()
    told = (installed.home / "child.txt").read_text()
    assert str(installed.home) in told, "PYTHONPATH of the team is as it was"
    assert "loopline/program" not in told
    (installed.home / "costs.py").write_text(CHILD.replace("import os, pathlib", "import models.costs, os, pathlib"))
    refused = installed("check-row", "./costs.py:METRIC")
    assert "here 'models' is a package of Loopline's: if yours is meant" in refused.out + refused.err


@pytest.mark.wide
@pytest.mark.timeout(900)  # all of it starts cold
def test_a_loop_a_platform_and_a_server_load_our_packages_alone(installed: Installed) -> None:
    begin(installed)
    spec = installed.home / "projects" / "churn" / "project.yaml"
    spec.write_text(f"{spec.read_text()}\nserve: {{up: true}}\n")
    installed("run", "churn").ok()
    first = status_of(installed)["loop_id"]
    private = (".loopline/", ".env", ".dvc/cache/", "projects/churn/data/")
    assert not [path for path in new_files(installed) if path.startswith(private)]
    try:
        installed("up", *(f"--port={name}=0" for name in ("prefect", "mlflow", "overview", "optuna", "serve"))).ok()
        installed("trigger", "churn", "--reason", "a test").ok()
        eventually(lambda: status_of(installed)["loop_id"] != first and status_of(installed)["state"] == "finished")
        served = json.loads(installed("status", "--json").ok().out)["services"]["serve"]
        with urllib.request.urlopen(f"{served['url']}/ping") as answer:
            assert answer.status == 200
    finally:
        installed("down").ok()
    logs = [path.read_text(errors="replace") for path in (installed.home / ".loopline").rglob("*.log")]
    assert logs
    assert not any(MESSAGE in text for text in logs)


def status_of(installed: Installed) -> dict[str, Any]:
    projects: list[dict[str, Any]] = json.loads(installed("status", "--json").ok().out)["projects"]
    return projects[0]

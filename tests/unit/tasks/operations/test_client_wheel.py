"""The package for `import loopline` as a wheel: the files of this program, and nothing but Python."""

from __future__ import annotations

import ast
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import loopline
from tasks.operations.client_wheel import write_wheel

PACKAGE = Path(loopline.__file__).parent


def test_it_installs_and_imports_in_an_empty_environment(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "new" / "folder", "1.2.3")
    venv.create(tmp_path / "team", with_pip=False)
    python = str(tmp_path / "team" / "bin" / "python")
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--offline", "--python", python]
    subprocess.run([*uv, str(wheel)], check=True)
    asked = "import importlib.metadata as m, loopline; print(m.version('loopline-client'), loopline.__file__)"
    printed = subprocess.run([python, "-IP", "-c", asked], capture_output=True, text=True, check=True).stdout
    version, file = printed.split()
    assert version == "1.2.3"
    assert Path(file).is_relative_to(tmp_path)
    assert {path.name for path in Path(file).parent.iterdir()} >= {"py.typed", "session.py"}
    assert not (tmp_path / "team" / "bin" / "loopline").exists(), "a second program of this name would hide the first"


def test_it_has_neither_the_launcher_nor_another_top_level_name(tmp_path: Path) -> None:
    names = zipfile.ZipFile(write_wheel(tmp_path, "1")).namelist()
    assert {name.split("/")[0] for name in names} == {"loopline", "loopline_client-1.dist-info"}
    assert "loopline/launcher.py" not in names


def test_the_same_package_has_the_same_bytes(tmp_path: Path) -> None:
    first, second = (write_wheel(tmp_path / name, "1").read_bytes() for name in "ab")
    assert first == second


def test_the_package_imports_nothing_but_python() -> None:
    for path in PACKAGE.glob("*.py"):
        if path.name == "launcher.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= {"loopline", *sys.stdlib_module_names}, path


def test_its_public_names_are_few() -> None:
    assert sorted(loopline.__all__) == ["LooplineError", "Model", "Result", "load", "run"]
    assert all(getattr(loopline, name).__doc__ for name in loopline.__all__)

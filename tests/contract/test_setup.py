"""The script that makes `.venv`: what it takes for a sound environment, and where it refuses to make one."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from types import ModuleType

import pytest

from models.parent_death import ends_with_parent
from tests.loaded import load

SCRIPT = Path(__file__).parents[2] / "infra" / "setup_env.py"


@pytest.fixture
def setup_env() -> ModuleType:
    return load(SCRIPT)


def test_an_environment_that_was_moved_is_made_anew(
    setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = tmp_path / "before" / ".venv", tmp_path / "my work" / ".venv"
    venv.create(before, with_pip=False)
    monkeypatch.setattr(setup_env, "VENV", before)
    assert setup_env._is_sound()
    after.parent.mkdir()
    monkeypatch.setattr(setup_env, "VENV", before.rename(after))
    assert not setup_env._is_sound()


def test_an_environment_of_another_python_is_made_anew(
    setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_env, "VENV", tmp_path / ".venv")
    assert not setup_env._is_sound(), "there is none"
    venv.create(tmp_path / ".venv", with_pip=False)
    monkeypatch.setattr(sys, "version_info", (3, 13, 1, "final", 0))
    assert not setup_env._is_sound()


def test_a_folder_that_mlflow_cannot_work_in_is_refused(
    setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup_env, "ROOT", tmp_path / "100%")
    assert setup_env.main() == 2
    assert "rename" in capsys.readouterr().err


def test_a_failure_names_the_way_round_an_index_that_cannot_be_reached(
    setup_env: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new user without a way to torch's own index saw the error of a name lookup, and no cure."""
    with pytest.raises(SystemExit):
        setup_env._run(sys.executable, "-c", "raise SystemExit(2)")
    assert "PIP_FIND_LINKS" in capsys.readouterr().err


@pytest.fixture
def installed(setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The lock files that each installation of a clone takes, whose environment is sound."""
    taken: list[set[str]] = []

    def record(env: dict[str, str], *options: str) -> None:
        locks = {option.removeprefix("--requirement=") for option in options if option.endswith(".lock")}
        taken.extend([locks] if locks else [])

    locks = [f"requirements{name}.lock" for name in ("", ".dev", ".kubernetes", ".estimators")]
    for name in (*locks, "pyproject.toml", ".venv/bin/loopline"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name, value in {"ROOT": tmp_path, "VENV": tmp_path / ".venv", "STAMP": tmp_path / ".venv" / "stamp"}.items():
        monkeypatch.setattr(setup_env, name, value)
    for name, function in {
        "_is_sound": lambda: True,
        "_put_clone_first": lambda: None,
        "_uv_environment": dict,
        "_run": lambda *command: None,
        "_uv": record,
    }.items():
        monkeypatch.setattr(setup_env, name, function)
    return taken


def test_an_environment_keeps_its_extras(
    setup_env: ModuleType, installed: list[set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make test` after `make setup EXTRAS=estimators` must neither lose the extra nor install anew at each turn."""
    base = {"requirements.lock", "requirements.dev.lock", "requirements.kubernetes.lock"}
    more = base | {"requirements.estimators.lock"}
    for extras, expected in (([], [base]), ([], []), (["estimators"], [more]), ([], []), (["estimators"], [])):
        installed.clear()
        monkeypatch.setattr(sys, "argv", ["setup_env.py", *extras])
        assert setup_env.main() == 0
        assert installed == expected
    (tmp_path / "requirements.estimators.lock").write_text("another pin")
    monkeypatch.setattr(sys, "argv", ["setup_env.py"])
    assert (setup_env.main(), installed) == (0, [more])


def test_an_unknown_extra_is_refused(
    setup_env: ModuleType,
    installed: list[set[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["setup_env.py", "estimator"])
    assert (setup_env.main(), installed) == (2, [])
    assert "EXTRAS=estimator, expected dev, estimators, kubernetes" in capsys.readouterr().err


def test_the_clone_comes_before_packages_of_the_same_names(setup_env: ModuleType, tmp_path: Path) -> None:
    """As in a repository of machine learning with folders of these names and the usual PYTHONPATH."""
    setup_env._put_clone_first()
    for name in ("flows", "tasks", "models"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    environ = {**os.environ, "PYTHONPATH": "."}
    program = Path(sys.executable).with_name("loopline")
    for command in (
        [program, "schema"],
        ends_with_parent(["-P", "-c", "import flows.cli, models.errors, tasks.host.stores"]),
    ):
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_wheel_of_torch_counts_for_its_own_python(
    setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_env.shutil, "which", lambda name: None)
    monkeypatch.setattr(setup_env.sys, "platform", "linux")
    env = {"UV_FIND_LINKS": f"{tmp_path / 'none'},{tmp_path}"}
    assert setup_env._torch_backend(env) == ["--torch-backend", "cpu"]
    (tmp_path / "torch-2.13.0-cp39-cp39-manylinux_2_28_x86_64.whl").touch()
    assert setup_env._torch_backend(env) == ["--torch-backend", "cpu"], "of another Python"
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    (tmp_path / f"torch-2.13.0+cpu-{own}-{own}-manylinux_2_28_x86_64.whl").touch()
    assert setup_env._torch_backend(env) == []


def test_settings_of_pip_reach_uv(setup_env: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a proxy with its own certificates pip worked, and uv refused them."""
    for name in ("UV_FIND_LINKS", "UV_DEFAULT_INDEX", "SSL_CERT_FILE", "PIP_FIND_LINKS", "PIP_CERT", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    settings = {"cert": "/my certs/ca.crt", "find-links": "/a\n/b", "index-url": ""}
    monkeypatch.setattr(setup_env, "_pip_config", settings.__getitem__)
    env = setup_env._uv_environment()
    assert (env["SSL_CERT_FILE"], env["UV_FIND_LINKS"]) == ("/my certs/ca.crt", "/a,/b")
    assert "UV_DEFAULT_INDEX" not in env

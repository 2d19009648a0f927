"""Makes `.venv` with every locked package; run by make, with whatever Python 3.11 to 3.13 the machine has.

Its arguments are extras, such as `estimators`: what requirements.NAME.lock adds. An environment keeps its extras; that
of a clone has those in `OF_A_CLONE` in any case.
It does nothing when the environment already matches the lock files. uv does the installing; it does not read pip's
own settings, so those that decide where packages come from (index, find-links, certificates) are handed on to it.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "loopline-lock.sha256"
SUPPORTED = ((3, 11), (3, 13))
UV_VERSION = "0.13.9"
OF_A_CLONE = ("dev", "kubernetes")
AWAY = (
    "if an index cannot be reached: `PIP_INDEX_URL=...` names another one, `PIP_FIND_LINKS=FOLDER` a folder with "
    "wheels, such as torch's; then run it again"
)


def main() -> int:
    """Create or update the environment; returns the exit code."""
    if not SUPPORTED[0] <= sys.version_info[:2] <= SUPPORTED[1]:
        return _with_a_supported_python()
    if set("?#%") & set(str(ROOT)):
        reason = "MLflow cannot work below a folder with `?`, `#` or `%` in its name"
        print(f"loopline: {reason}: rename {ROOT}", file=sys.stderr)
        return 2
    got = STAMP.read_text().split() if STAMP.exists() else []
    extras = sorted({*OF_A_CLONE, *got[1:], *sys.argv[1:]})
    unknown = [name for name in extras if not (ROOT / _lock(name)).exists()]
    if unknown:
        known = ", ".join(path.name.split(".")[1] for path in sorted(ROOT.glob(_lock("*"))))
        print(f"loopline: got EXTRAS={' '.join(unknown)}, expected {known}", file=sys.stderr)
        return 2
    locks = ["requirements.lock", *map(_lock, extras)]
    want = [_fingerprint(locks), *extras]
    if got == want and (VENV / "bin" / "loopline").exists():
        _put_clone_first()
        return 0
    print("loopline: setting up .venv (locked packages)", flush=True)
    if not _is_sound():
        venv.create(VENV, with_pip=True, clear=True)
    _run(VENV / "bin" / "python", "-m", "pip", "install", "--quiet", f"uv=={UV_VERSION}")
    env = _uv_environment()
    _uv(env, *(f"--requirement={lock}" for lock in locks), *_torch_backend(env))
    _uv(env, "--no-deps", "--editable", ".")
    _put_clone_first()
    STAMP.write_text(" ".join(want))
    return 0


def _lock(extra: str) -> str:
    return f"requirements.{extra}.lock"


def _put_clone_first() -> None:
    """Have every Python of the environment look here first: PYTHONPATH may lead to other packages named like ours."""
    (packages,) = VENV.glob("lib/python*/site-packages")
    (packages / "loopline_first.pth").write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n")


def _is_sound() -> bool:
    """Whether there is an environment of this Python, made here: one that was moved has programs that do not start."""
    notes = VENV / "pyvenv.cfg"
    lines = notes.read_text().splitlines() if notes.exists() and (VENV / "bin" / "python").exists() else []
    version = ".".join(map(str, sys.version_info[:3]))
    return f"version = {version}" in lines and any(
        line.startswith("command = ") and line.endswith(f" {VENV}") for line in lines
    )


def _with_a_supported_python() -> int:
    for minor in range(SUPPORTED[0][1], SUPPORTED[1][1] + 1):
        python = shutil.which(f"python3.{minor}")
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return subprocess.run([python, *sys.argv], check=False).returncode
    got = ".".join(map(str, sys.version_info[:3]))
    print(
        f"loopline: got Python {got}, expected 3.11, 3.12 or 3.13: install one and name it, "
        "as in `make run PYTHON=python3.11`",
        file=sys.stderr,
    )
    return 2


def _fingerprint(locks: list[str]) -> str:
    parts = [(ROOT / name).read_bytes() for name in (*locks, "pyproject.toml")]
    return hashlib.sha256(b"".join([*parts, sys.version.encode(), str(ROOT).encode()])).hexdigest()


def _uv_environment() -> dict[str, str]:
    """The environment for uv: this one, with pip's settings in the words that uv reads."""
    env = dict(os.environ, VIRTUAL_ENV=str(VENV))
    words = {
        "UV_FIND_LINKS": ("PIP_FIND_LINKS", "find-links"),
        "UV_DEFAULT_INDEX": ("PIP_INDEX_URL", "index-url"),
        "SSL_CERT_FILE": ("PIP_CERT", "cert"),
    }
    for uv_name, (pip_name, setting) in words.items():
        value = env.get(uv_name) or env.get(pip_name) or _pip_config(setting)
        if value:
            env[uv_name] = ",".join(value.split()) if uv_name == "UV_FIND_LINKS" else value.strip()
    return env


def _pip_config(setting: str) -> str:
    """Return a setting of pip's own files; `config get` of pip 23 does not find those of the whole machine."""
    command = [VENV / "bin" / "python", "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    values = [value for line in listed for name, _, value in [line.partition("=")] if name == f"global.{setting}"]
    return str(ast.literal_eval(values[-1])).strip() if values else ""


def _torch_backend(env: dict[str, str]) -> list[str]:
    """No CUDA on a machine without a GPU: torch's CPU wheels, unless the machine offers its own for this Python."""
    wheel = f"torch-*-cp{sys.version_info[0]}{sys.version_info[1]}-*.whl"
    places = [Path(place) for place in env.get("UV_FIND_LINKS", "").split(",") if place]
    offered = any(place.is_dir() and any(place.glob(wheel)) for place in places)
    if offered or sys.platform != "linux" or shutil.which("nvidia-smi"):
        return []
    return ["--torch-backend", "cpu"]


def _uv(env: dict[str, str], *arguments: str) -> None:
    _run(VENV / "bin" / "uv", "pip", "install", "--quiet", "--compile-bytecode", *arguments, env=env)


def _run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run([str(part) for part in command], cwd=ROOT, env=env, check=False)
    if done.returncode:
        print(f"loopline: setting up failed at: {' '.join(map(str, command))}", file=sys.stderr)
        print(f"loopline: {AWAY}", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    raise SystemExit(main())

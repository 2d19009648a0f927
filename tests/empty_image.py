"""An image without files, whose containers see the programs of this machine: a real one would hold 2 GB of torch."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

IMAGE = "localhost/loopline:test"
ROOT = Path(__file__).parents[1]
_FOLDERS = ("bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "tmp", "usr", "var")


def write_image(path: Path) -> None:
    """Write the image as an archive that `ctr images import` takes."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in _FOLDERS:
            _add(tar, name)
        _add(tar, "etc/passwd", b"root:x:0:0::/tmp:/bin/sh\n")
        _add(tar, "pause", _pause())
    programs = Path(sys.executable).parent
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [f"PATH={programs}:/usr/local/bin:/usr/bin:/bin"], "Cmd": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        _add(tar, "config.json", json.dumps(config).encode())
        _add(tar, "layer.tar", layer.getvalue())
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def base_spec() -> dict[str, Any]:
    """The runtime's specification that containerd begins with: its own, and this machine's programs, read-only."""
    shown = subprocess.run(["ctr", "oci", "spec"], check=True, capture_output=True, text=True).stdout
    spec: dict[str, Any] = json.loads(shown)
    places = {Path(name) for name in ("/usr", "/lib", "/lib64", "/bin", "/sbin") if Path(name).exists()}
    places |= {ROOT, Path(sys.prefix), Path(sys.base_prefix)}
    outermost = [place for place in places if not places & set(place.parents)]
    spec["mounts"] += [
        {"destination": str(place), "type": "bind", "source": str(place.resolve()), "options": ["rbind", "ro"]}
        for place in sorted(outermost)
    ]
    return spec


def _pause() -> bytes:
    """The program that holds a pod's namespaces, which sees no program of this machine: `for (;;) pause();`."""
    code, start = b"\xb8\x22\x00\x00\x00\x0f\x05\xeb\xf7", 0x400000
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 62, 1, start + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    size = 120 + len(code)
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, size, size, 0x1000) + code


def _add(tar: tarfile.TarFile, name: str, content: bytes | None = None) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = 0o755
    if content is None:
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    else:
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))

"""Certificates for servers and clients of a test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def certificate(folder: Path) -> None:
    """A certificate of 127.0.0.1 that signs itself."""
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"),
        ],
        check=True, capture_output=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip

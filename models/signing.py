"""Signatures (HMAC) of registered versions: only a process with the key can register files.

Hashes alone show that the files match the registry; a signature also shows that the registry's hashes were not
replaced.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping

TAG = "loopline.signature"
_PURPOSE = "loopline version 1"


def signature(key: str, model: str, hashes: Mapping[str, str]) -> str:
    """Return the signature of a version's files in hexadecimal: HMAC-SHA256 over the model's name and file hashes."""
    content = json.dumps([_PURPOSE, model, sorted(hashes.items())], separators=(",", ":"))
    return hmac.new(key.encode(), content.encode(), hashlib.sha256).hexdigest()


def is_signed(key: str, model: str, hashes: Mapping[str, str], token: str) -> bool:
    """Return whether a signature belongs to these files; the comparison takes constant time."""
    return hmac.compare_digest(signature(key, model, hashes).encode(), token.encode())

"""Signatures (HMAC) of registered versions: prove that these files were registered by an owner of the key.

Hashes alone show that files are those that the registry names; a signature shows that the registry was not made to
name others.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping

TAG = "loopline.signature"
_PURPOSE = "loopline version 1"


def signature(key: str, model: str, hashes: Mapping[str, str]) -> str:
    """The signature of a version's files, in hexadecimal: HMAC-SHA256 over the model's name and each file's hash."""
    content = json.dumps([_PURPOSE, model, sorted(hashes.items())], separators=(",", ":"))
    return hmac.new(key.encode(), content.encode(), hashlib.sha256).hexdigest()


def is_signed(key: str, model: str, hashes: Mapping[str, str], token: str) -> bool:
    """Whether a signature is that of these files; compared in constant time."""
    return hmac.compare_digest(signature(key, model, hashes).encode(), token.encode())

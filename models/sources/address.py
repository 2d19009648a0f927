"""A source by its address: `s3://bucket/table.parquet`, `https://host/rows.csv.gz`, `file:///data/*.csv`.

An address names a file, a folder, or files by a pattern. Credentials are in the environment alone; `${NAME}` stands for
a variable of it, whose value is in no message, record or key.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from models.errors import UsageError
from models.installation import adding
from models.sources.source import Source


class AddressScheme(NamedTuple):
    """How the addresses of a scheme are read: by a library, and with credentials from a place."""

    library: str
    credentials: str


_NETRC = "its login in ~/.netrc"
_AZURE = AddressScheme("adlfs", "AZURE_STORAGE_CONNECTION_STRING")
ADDRESS_SCHEMES = {
    "s3": AddressScheme("s3fs", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
    "https": AddressScheme("aiohttp", _NETRC),
    "http": AddressScheme("aiohttp", _NETRC),
    "file": AddressScheme("fsspec", _NETRC),
    "gs": AddressScheme("gcsfs", "GOOGLE_APPLICATION_CREDENTIALS"),
    "hf": AddressScheme("huggingface_hub", "HF_TOKEN"),
    "az": _AZURE,
    "abfs": _AZURE,
}
"""Loopline installs the libraries of the first four."""
FORM = "an address of s3:, https:, http:, file:, gs:, az: or hf:"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)\}")
_SECRETS = {
    *("x-amz-signature", "x-amz-security-token", "x-goog-signature", "sig", "signature"),
    *("token", "access_token", "private_token", "api_key", "apikey", "password", "secret", "client_secret"),
}
"""Arguments of an address that are credentials."""


def is_address(text: str) -> bool:
    """Return whether a text is an address, of any scheme."""
    return _ADDRESS.fullmatch(text) is not None


def expanded(text: str) -> str:
    """Return an address with the values of its variables.

    Raises:
        UsageError: A variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        if not os.environ.get(match["name"]):
            raise UsageError(
                f"data.source: {text}: the variable {match['name']} is not set: export it, or name another"
            )
        return os.environ[match["name"]]

    return _VARIABLE.sub(value, text)


def without_secrets(message: str, text: str) -> str:
    """Return a message in which the values of an address's variables, quoted or not, are their names again."""
    for match in _VARIABLE.finditer(text):
        if value := os.environ.get(match["name"]):
            spelt = "".join(f"(?:{re.escape(sign)}|{re.escape(quote(sign, safe=''))})" for sign in value)
            message = re.sub(spelt.replace("%20", r"%20|\+"), match[0], message, flags=re.IGNORECASE)
    return message


def local(source: Source) -> Path | None:
    """Return None, for nothing of it is here; refuse an address that cannot be read or holds a secret.

    Raises:
        UsageError: Says which part of it, and what to write.
    """
    text = source.text
    scheme = text.partition("://")[0]
    if scheme not in ADDRESS_SCHEMES:
        raise UsageError(
            f"data.source: got the scheme {scheme}:, expected {FORM}, a file, a package (pypi:, npm:, debian:) or your "
            "own function `./source.py:load`"
        )
    library, credentials = ADDRESS_SCHEMES[scheme]
    parts = urlsplit(text)
    if "@" in parts.netloc:
        host = parts.netloc.rpartition("@")[2]
        raise UsageError(
            f"data.source: {scheme}://...@{host} holds a user or password: leave it out, and set {credentials}"
        )
    secrets = [name for name, value in parse_qsl(parts.query) if name.lower() in _SECRETS and "${" not in value]
    if secrets:
        raise UsageError(
            f"data.source: {scheme}://{parts.netloc}{parts.path}?{secrets[0]}=... holds a credential: write "
            f"{secrets[0]}=${{NAME}}, and set the variable NAME"
        )
    if scheme.startswith("http") and "*" in parts.path:
        raise UsageError(f"data.source: {text}: a server of files cannot list them: name one file, or use s3: or file:")
    if find_spec(library) is None:
        raise UsageError(f"data.source: {text}: {scheme}: needs {library}, which is not installed: {adding(library)}")
    return None

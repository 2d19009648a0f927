"""The files at an address: their names, sizes and versions, without their content, as fsspec tells them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from models.errors import DataError, StoreError, one_line, with_causes
from models.sources.address import ADDRESS_SCHEMES, expanded, without_secrets
from models.sources.folders import PREDICTIONS, is_hidden
from models.sources.packed import split_text
from models.sources.readers.delta import LOG

CONNECT_S = 10
READ_S = 60
_CHECKSUMS = ("ETag", "etag", "Content-MD5", "md5Hash", "content_md5", "blob_id")
_TIMES = ("LastModified", "Last-Modified", "updated", "last_modified", "mtime")
_WILDCARD = re.compile(r"[*?\[]")
_REFUSED = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "PermissionError",
    "TokenRetrievalError",
}
_CERTIFICATES = {"SSLCertVerificationError", "ClientConnectorCertificateError", "SSLError"}
_SLOW = {"SocketTimeoutError", "ReadTimeoutError"}
_AWAY = {
    "ConnectError",
    "ConnectionError",
    "ClientConnectorError",
    "ClientConnectorDNSError",
    "EndpointConnectionError",
    "ConnectTimeoutError",
    "ConnectionRefusedError",
    "ServerDisconnectedError",
    "gaierror",
}


class RemoteFile(NamedTuple):
    """A file at an address.

    Attributes:
        name: Relative to the address' folder, with `/`.
        path: What its file system calls it.
        size: Bytes; None if its server does not say.
        version: Changes when the file does.
    """

    name: str
    path: str
    size: int | None
    version: str


def file_system(text: str) -> tuple[Any, str]:
    """Return fsspec's file system of an address, which lists anew at each question, and the path on it.

    Raises:
        UsageError: A variable of the address is not set.
        StoreError: Its settings are wrong.
    """
    import fsspec

    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if text.startswith("http"):
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
        options |= {"client_kwargs": {"trust_env": True, "timeout": timeout}}
    elif text.startswith("s3:"):
        retries = {"max_attempts": 2, "mode": "standard"}
        options |= {"config_kwargs": {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": retries}}
        if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
            options["endpoint_url"] = endpoint
    address = expanded(split_text(text)[0])
    with reaching(text):
        system, path = fsspec.url_to_fs(address, **options)
    return system, str(path)


def listed(text: str) -> list[RemoteFile]:
    """Return the files at an address, sorted by name; no content is fetched.

    Files and folders whose names begin with `.` or `_` are hidden, as in a folder of this machine.

    Raises:
        UsageError: A variable of the address is not set.
        StoreError: It cannot be reached or read, or its server sends a page in place of a table.
        DataError: There is nothing to read, or nothing that tells its version.
    """
    system, path = file_system(text)
    with reaching(text):
        if not text.startswith("http") and _WILDCARD.search(path):
            infos, root = system.glob(path, detail=True), _fixed_part(path)
        else:
            info = system.info(path)
            is_folder = info["type"] == "directory"
            infos = system.find(path, detail=True) if is_folder else {path: info}
            root = path if is_folder else str(PurePosixPath(path).parent)
    files = [
        _remote_file(text, name, info, root) for name, info in sorted(infos.items()) if info["type"] != "directory"
    ]
    visible = [file for file in files if _is_visible(PurePosixPath(file.name).parts)]
    visible = [file for file in visible if not file.name.endswith(PREDICTIONS)]
    if not visible:
        raise DataError(f"data.source {text}: there is no file, expected some: correct the address")
    return visible


def _is_visible(parts: Sequence[str]) -> bool:
    """Return whether a file may be data, or belongs to the log of a Delta table, without which its files are none."""
    return not any(map(is_hidden, parts)) or (LOG in parts and not parts[-1].startswith("."))


def _remote_file(text: str, path: str, info: Mapping[str, Any], root: str) -> RemoteFile:
    if info.get("mimetype") == "text/html":
        final = str(info.get("url", ""))
        led = without_secrets(final.partition("?")[0], text)
        moved = "" if final in ("", expanded(split_text(text)[0])) else f", and was led to {led}"
        raise DataError(
            f"data.source {text}: got a page (text/html){moved}, expected a table: it may be a page of login or of an "
            f"error; open it in a browser, and set {ADDRESS_SCHEMES[text.partition(':')[0]].credentials}"
        )
    checksum = next((str(info[name]) for name in _CHECKSUMS if info.get(name)), "")
    changed = next((str(info[name]) for name in _TIMES if info.get(name)), "")
    if not checksum and not changed:
        raise DataError(
            f"data.source {text}: its server tells neither an ETag nor when it changed, so no loop could know that it "
            "did: fetch it by a function of your own (./source.py:load)"
        )
    name = path.removeprefix(root).lstrip("/") if "://" not in path else urlsplit(path).path.rpartition("/")[2]
    if not name or ".." in name.split("/"):
        raise DataError(f"data.source {text}: {path!r} is no name of a file: rename it, or name one file")
    return RemoteFile(name, path, info.get("size"), checksum or f"{info.get('size')} bytes of {changed}")


def _fixed_part(path: str) -> str:
    """Return the folder of a pattern: its parts before the first that has a wildcard."""
    parts = path.split("/")
    first = next(place for place, part in enumerate(parts) if _WILDCARD.search(part))
    return "/".join(parts[:first])


@contextlib.contextmanager
def reaching(text: str) -> Iterator[None]:
    """Convert errors of a file system to a StoreError with its cure, without a value of a variable.

    Raises:
        StoreError: The address cannot be reached or read.
    """
    try:
        yield
    except (DataError, StoreError):
        raise
    except Exception as error:
        causes = [*with_causes(error)]
        names = {type(cause).__name__ for cause in causes}
        status = next(filter(None, map(_status_of, causes)), None)
        reason = without_secrets(one_line(causes[-1], 200), text)
        credentials = ADDRESS_SCHEMES[text.partition(":")[0]].credentials
        is_expired = status == 400 and text.startswith("s3:")  # so S3 answers a HEAD with an old token
        if status in (401, 403) or is_expired or names & _REFUSED:
            cure = f"its credentials are missing, wrong or expired: set {credentials}"
        elif names & _CERTIFICATES:
            cure = "its certificate is not trusted here: name the authority's file by SSL_CERT_FILE"
        elif "TooManyRedirects" in names:
            cure = f"its server redirects in a circle: correct the address, or log in: set {credentials}"
            reason = type(causes[-1]).__name__
        elif names & _SLOW:
            cure = f"it did not answer within {READ_S} s: try again when it is less busy"
        elif names & _AWAY or "Timeout" in "".join(names):
            cure = "it cannot be reached: correct the host, or try again when it is there"
        elif isinstance(error, FileNotFoundError) and status in (None, 404, 410):
            cure = "there is no such file, folder or bucket: correct the address"
        else:
            cure = "it cannot be read: try again, or correct the address"
        raise StoreError(f"data.source {text}: {cure} ({reason})") from error


def _status_of(error: BaseException) -> int | None:
    """Return the status of HTTP that an error of aiohttp, botocore or httpx holds."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(error, "status", None) or getattr(response, "status_code", None)
    return status if isinstance(status, int) else None

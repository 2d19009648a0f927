"""The object store of a workspace: its bytes under LOOPLINE_ROOT, `s3://bucket/prefix` or `file:///folder`.

Every object is written whole or not at all. Credentials, region and endpoint come from the environment alone, as
botocore reads it (`AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, `AWS_ENDPOINT_URL` and so on). Without LOOPLINE_ROOT nothing here
is used, and fsspec is not imported.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from models.errors import StoreError, one_line
from models.files import sha256, storing, sync, whole_file
from tasks.host.store_addresses import ROOT, normalised

LAYOUT_NAME = "layout"
LAYOUT = b"1\n"
"""The version of the names under the root; it increases when objects change their names or meaning."""
_CONNECT_S = 5
_LISTED = {"use_listings_cache": False, "default_fill_cache": False}
_SETTINGS = {"connect_timeout": _CONNECT_S, "retries": {"max_attempts": 2, "mode": "standard"}}
_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "CredentialRetrievalError"}
_KEYS_CURE = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_AWAY = {"BotoCoreError", "ClientError", "ClientPayloadError", "OSError"}


class StoredObject(NamedTuple):
    """An object in a listing: its size in bytes, and when it was written (Unix time, seconds)."""

    size: int
    modified: float


class DamagedError(StoreError):
    """An object is missing, or its content is not what was stored."""


class ObjectStore:
    """Objects under one address, by names such as `projects/flights/blobs/3a...`; safe to use from several threads.

    All methods raise a StoreError with its cure if the store cannot be used.

    Args:
        address: `s3://bucket/prefix` or `file:///folder`.
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._is_local = address.startswith("file://")
        self._path = self.address.partition("://")[2]
        self._file_system = _file_system(self._is_local, os.getpid(), _settings_of_aws())

    def check(self) -> None:
        """Check that the store can be reached and has this program's layout; mark a new store as ours.

        Raises:
            StoreError: It cannot be reached, read or written, or another version of Loopline made it.
        """
        layout = self.get(LAYOUT_NAME)
        if layout is None:
            self.create(LAYOUT_NAME, LAYOUT)
            layout = self.get(LAYOUT_NAME)
        if layout != LAYOUT:
            got = "nothing" if layout is None else repr(layout.decode(errors="replace").strip())
            raise StoreError(
                f"{ROOT}={self.address}: has layout {got}, expected {LAYOUT.decode().strip()!r}: another version of "
                "Loopline made it. Name another prefix, or go back to that version: nothing in it was changed"
            )

    def get(self, name: str) -> bytes | None:
        """Return an object's content; None if there is none."""
        with self._reaching():
            try:
                content: bytes = self._file_system.cat_file(self._at(name))
            except FileNotFoundError as error:
                self._refuse_no_bucket(error)
                return None
            return content

    def opened(self, name: str) -> IO[bytes]:
        """Open an object for reading in parts.

        Raises:
            FileNotFoundError: There is no such object.
        """
        with self._reaching(), contextlib.suppress(FileNotFoundError):
            file: IO[bytes] = self._file_system.open(self._at(name), "rb")
            return file
        raise FileNotFoundError(f"{self.address}/{name}")

    def put(self, name: str, content: bytes) -> None:
        """Write an object; it replaces one of the same name."""
        with self._reaching():
            if not self._is_local:
                self._file_system.pipe_file(self._at(name), content)
                return
            with whole_file(Path(self._at(name))) as temporary:
                temporary.write_bytes(content)
                sync(temporary)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of this name, of which several writers make one; return whether it did.

        On S3 by a conditional request (`If-None-Match: *`), on a file system by a link.
        """
        with self._reaching():
            try:
                if self._is_local:
                    self._link(Path(self._at(name)), content)
                else:
                    self._file_system.pipe_file(self._at(name), content, mode="create")
            except FileExistsError:
                return False
            return True

    def put_file(self, name: str, path: Path) -> None:
        """Write a local file as an object; large files go in parts, and the object appears with the last one.

        Raises:
            FileNotFoundError: There is no such local file.
        """
        path.stat()
        with self._reaching():
            if not self._is_local:
                self._file_system.put_file(str(path), self._at(name))
                return
            with whole_file(Path(self._at(name))) as temporary:
                shutil.copyfile(path, temporary)
                sync(temporary)

    def get_file(self, name: str, path: Path, digest: str) -> None:
        """Write an object into a local file, whole.

        Args:
            name: The object.
            path: The local file, which is replaced.
            digest: The SHA-256 that the content must have.

        Raises:
            DamagedError: There is no such object, or its content is another; the local file stays as it was.
        """
        with whole_file(path) as temporary:
            with self._reaching():
                try:
                    self._file_system.get_file(self._at(name), str(temporary))
                except FileNotFoundError as error:
                    self._refuse_no_bucket(error)
                    raise DamagedError(f"{self.address}/{name}: there is no such object") from error
            if sha256(temporary) != digest:
                raise DamagedError(f"{self.address}/{name}: its content is not what was stored")

    def find(self, name: str) -> StoredObject | None:
        """Return size and time of an object; None if there is none. Cost: a request."""
        info = self._entries(name).get(self._at(name))
        return _stored(info) if info else None

    def listed(self, prefix: str) -> dict[str, StoredObject]:
        """Return all objects below a prefix, sorted by name. Cost: a request for each 1,000."""
        start = len(self._path) + 1
        entries = self._entries(f"{prefix}/" if prefix else "")
        named = {path[start:]: _stored(info) for path, info in sorted(entries.items())}
        return {name: info for name, info in named.items() if not Path(name).name.startswith(".")}

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; those that are not there do no harm."""
        with self._reaching():
            if self._is_local:
                for name in names:
                    Path(self._at(name)).unlink(missing_ok=True)
            elif names:
                self._file_system.rm([self._at(name) for name in names])

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _entries(self, start: str) -> dict[str, Any]:
        """Return fsspec's record of each object whose name begins so, by its path.

        On S3 that is one request: s3fs asks twice more about an empty folder, and once more about a missing object.
        """
        at, beginning = (self._at(start), {}) if self._is_local else (self._path, {"prefix": start})
        with self._reaching():
            try:
                entries: dict[str, Any] = self._file_system.find(at, detail=True, **beginning)
            except FileNotFoundError as error:
                self._refuse_no_bucket(error)
                return {}
        return entries

    def _link(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp") as temporary:
            temporary.write(content)
            temporary.flush()
            os.fsync(temporary.fileno())
            os.link(temporary.name, path)

    def _refuse_no_bucket(self, error: FileNotFoundError) -> None:
        if _code(error) == "NoSuchBucket":
            bucket = self._path.partition("/")[0]
            raise StoreError(
                f"{ROOT}={self.address}: there is no bucket {bucket!r}: make it (`aws s3 mb s3://{bucket}`), or "
                "correct the variable"
            ) from error

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Convert errors of the store to a StoreError that names the cure."""
        try:
            with storing(Path(self._path)) if self._is_local else contextlib.nullcontext():
                yield
        except StoreError:
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError):
                self._refuse_no_bucket(error)
            kinds = {kind.__name__ for kind in type(error).__mro__}
            where, text = f"{ROOT}={self.address}", one_line(error)
            if kinds & _CREDENTIALS:
                raise StoreError(f"{where}: no credentials ({text}): {_KEYS_CURE}") from error
            if isinstance(error, PermissionError):
                cure = "correct the credentials, or let them read, write, list and delete there"
                raise StoreError(f"{where}: the store refuses ({_code(error) or text}): {cure}") from error
            if kinds & _AWAY:
                address = ROOT if self._is_local else "AWS_ENDPOINT_URL and AWS_REGION"
                cure = f"finished work is kept: run again when it answers, or correct {address}"
                raise StoreError(f"{where}: cannot be used ({text}): {cure}") from error
            raise


def object_store() -> ObjectStore | None:
    """Return the object store that LOOPLINE_ROOT names; None if it is not set.

    Raises:
        UsageError: The variable holds no address of a store.
    """
    named = os.environ.get(ROOT)
    return ObjectStore(normalised(ROOT, named)) if named else None


def s3_settings() -> dict[str, str]:
    """Return the keys, region and endpoint that botocore reads, as options of delta-rs, which reads them otherwise.

    Raises:
        StoreError: There are no credentials, or a setting is not valid.
    """
    from botocore.exceptions import BotoCoreError

    try:
        session, region, endpoint = _s3_session(os.getpid(), _settings_of_aws())
        credentials = session.get_credentials()
        keys = credentials and credentials.get_frozen_credentials()
    except (BotoCoreError, ValueError) as error:
        raise StoreError(f"{ROOT}: S3 cannot be used ({error}): correct the settings of AWS") from error
    if keys is None:
        raise StoreError(f"{ROOT}: no credentials for S3: {_KEYS_CURE}")
    settings = {
        "aws_access_key_id": keys.access_key,
        "aws_secret_access_key": keys.secret_key,
        "aws_session_token": keys.token,
        "aws_region": region,
        "aws_endpoint_url": endpoint,
        "allow_http": "true" if endpoint and endpoint.startswith("http://") else None,
    }
    return {name: value for name, value in settings.items() if value}


def _settings_of_aws() -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))


@functools.lru_cache(maxsize=4)
def _s3_session(pid: int, environ: tuple[tuple[str, str], ...]) -> tuple[Any, str | None, str | None]:
    """Return botocore's session, the region, and the endpoint unless it is Amazon's; both arguments are its key."""
    del pid, environ
    from botocore.session import get_session

    session = get_session()
    client = session.create_client("s3")
    region, endpoint = client.meta.region_name, client.meta.endpoint_url
    client.close()
    return session, region, None if endpoint.endswith((".amazonaws.com", ".amazonaws.com.cn")) else endpoint


@functools.lru_cache(maxsize=4)
def _file_system(is_local: bool, pid: int, environ: tuple[tuple[str, str], ...]) -> Any:
    """Return fsspec's file system: one per process, since its connections survive no fork, and per settings of AWS."""
    del pid, environ
    import fsspec

    if is_local:
        return fsspec.filesystem("file", auto_mkdir=True)
    return fsspec.filesystem("s3", skip_instance_cache=True, config_kwargs=_SETTINGS, **_LISTED)


def _stored(info: dict[str, Any]) -> StoredObject:
    modified = info.get("LastModified", info.get("mtime"))
    return StoredObject(info["size"], modified.timestamp() if isinstance(modified, datetime) else float(modified or 0))


def _code(error: BaseException) -> str:
    """Return the S3 error code behind an error of s3fs; empty if there is none."""
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))

"""Snapshots: sets of files at the object store, each file once by its SHA-256, each set by a manifest written last.

PREFIX/blobs/SHA256                 the content of a file
PREFIX/manifests/LABELSHA256.json   the names of a set's files, and the SHA-256 of each

Names hold the hash of the content, so two writers never mix: they write the same bytes, or other names. What a writer
left behind that was killed before its manifest is never read; `sweep` deletes it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from models.files import sha256
from tasks.host.object_store import DamagedError, ObjectStore, StoredObject

DAY_S = 86400.0
LEAST_AGE_S = 3600.0
"""No object is deleted earlier, since another writer may be about to name it in a manifest."""
_AT_ONCE = 8
T = TypeVar("T")


class LocalFile(NamedTuple):
    """A file of this machine and its SHA-256."""

    path: Path
    digest: str


class Snapshots:
    """The snapshots under one prefix of an object store.

    Args:
        store: The object store.
        prefix: Where they are, such as `projects/flights/steps`.
        keep_s: How long a snapshot stays after its last use, in seconds.
    """

    def __init__(self, store: ObjectStore, prefix: str, keep_s: float = 14 * DAY_S) -> None:
        self.store = store
        self._blobs, self._manifests = f"{prefix}/blobs", f"{prefix}/manifests"
        self._keep_s = max(keep_s, LEAST_AGE_S)

    def save(self, files: Mapping[str, LocalFile], label: str = "") -> str:
        """Upload files that the store lacks, then their manifest; return the snapshot's name.

        Args:
            files: The files by their names in the snapshot.
            label: The beginning of the snapshot's name, by which snapshots are ordered.

        Raises:
            StoreError: The store cannot be used.
            FileNotFoundError: A file has gone meanwhile.
        """
        by_digest = {file.digest: file.path for file in files.values()}
        _each(self._upload, by_digest.items())
        digests = {name: file.digest for name, file in sorted(files.items())}
        content = json.dumps(digests, indent=1).encode()
        name = f"{label}{hashlib.sha256(content).hexdigest()}"
        self.store.put(self._manifest(name), content)
        return name

    def digests(self, name: str) -> dict[str, str]:
        """Return the SHA-256 of each file of a snapshot.

        Raises:
            DamagedError: There is no such snapshot, or it is damaged.
            StoreError: The store cannot be used.
        """
        content = self.store.get(self._manifest(name))
        if content is None or not name.endswith(hashlib.sha256(content).hexdigest()):
            got = "damaged" if content else "not there"
            raise DamagedError(f"{self.store.address}/{self._manifest(name)}: it is {got}")
        return dict(json.loads(content))

    def load(self, name: str, place: Callable[[str], Path | None]) -> None:
        """Download the files of a snapshot that this machine lacks; each is verified by its SHA-256.

        Args:
            name: The snapshot.
            place: Returns where a file belongs; None for a file that is not wanted.

        Raises:
            DamagedError: The snapshot or a file of it is missing or damaged.
            StoreError: The store cannot be used, or the disk is full.
        """
        files = [(path, digest) for file, digest in self.digests(name).items() if (path := place(file))]
        _each(self._download, files)

    def names(self) -> list[str]:
        """Return the names of all snapshots, sorted."""
        return [*self.last_uses()]

    def last_uses(self) -> dict[str, float]:
        """Return when each snapshot was saved or renewed last, by its name, sorted; Unix time, seconds."""
        return {_name(path): info.modified for path, info in self.store.listed(self._manifests).items()}

    def renew(self, used: Collection[str]) -> None:
        """Let snapshots count as used now; each is written anew at most once a day."""
        stale = time.time() - min(self._keep_s / 2, DAY_S)
        for path, info in self.store.listed(self._manifests).items():
            if _name(path) in used and info.modified < stale and (content := self.store.get(path)):
                self.store.put(path, content)

    def unused(self, used: Collection[str] = ()) -> dict[str, StoredObject]:
        """Return the manifests that nobody used for `keep_s`, and then the files that no other manifest names."""
        manifests, age = self.store.listed(self._manifests), time.time() - self._keep_s
        old = {path: info for path, info in manifests.items() if _name(path) not in used and info.modified < age}
        if not old:
            return {}
        named = self._named_by([_name(path) for path in manifests if path not in old])
        blobs = self.store.listed(self._blobs)
        return old | {
            path: info for path, info in blobs.items() if Path(path).name not in named and info.modified < age
        }

    def sweep(self, used: Collection[str], confirm: Callable[[], None]) -> int:
        """Delete snapshots that nobody used for `keep_s`, and their files; return the freed bytes.

        Args:
            used: The names of snapshots that are in use; they count as used now.
            confirm: Raises unless this process may delete; called between each look and what it deletes.
        """
        self.renew(used)
        old = self.unused(used)
        blobs = {path: info for path, info in old.items() if path.startswith(f"{self._blobs}/")}
        for paths in ([path for path in old if path not in blobs], [*blobs]):  # a manifest goes before its files
            if paths:
                confirm()
                self.store.delete(paths)
        return sum(info.size for info in blobs.values())

    def keep_newest(self, count: int) -> None:
        """Delete all but the last snapshots by name, and the files that they alone name.

        For a prefix of one writer. A file that no manifest names is left: a writer may be about to name it.
        """
        names = self.names()
        doomed, newest = names[:-count], names[-count:]
        if doomed:
            digests = self._named_by(doomed) - self._named_by(newest)
            self.store.delete([self._manifest(name) for name in doomed])
            self.store.delete([f"{self._blobs}/{digest}" for digest in sorted(digests)])

    def _named_by(self, names: Iterable[str]) -> set[str]:
        return set().union(*_each(self._named, [(name,) for name in names]))

    def _named(self, name: str) -> set[str]:
        """Return the files that a snapshot names; a damaged one, which nobody can use, names none."""
        try:
            return set(self.digests(name).values())
        except DamagedError:
            return set()

    def _upload(self, digest: str, path: Path) -> None:
        """Upload a file unless it is there; one that may soon be deleted as unused is written anew."""
        blob = f"{self._blobs}/{digest}"
        info: StoredObject | None = self.store.find(blob)
        if info is None or info.modified < time.time() - self._keep_s / 2:
            self.store.put_file(blob, path)

    def _download(self, path: Path, digest: str) -> None:
        if not path.is_file() or sha256(path) != digest:
            self.store.get_file(f"{self._blobs}/{digest}", path, digest)

    def _manifest(self, name: str) -> str:
        return f"{self._manifests}/{name}.json"


def _name(path: str) -> str:
    return Path(path).name.removesuffix(".json")


def _each(call: Callable[..., T], arguments: Iterable[tuple[object, ...]]) -> list[T]:
    """Call a function with each of the arguments, some at once."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="loopline-store") as pool:
        return list(pool.map(lambda call_arguments: call(*call_arguments), arguments))

"""Removes data from DVC's default remote: `python -m tasks.tools.dvc_remote ROOT` reads the hashes from its input.

A process of its own, because DVC's imports would stay in memory. DVC's own `gc` cannot name what goes, only what stays.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import StoreError, one_line
from models.launch import launched

if TYPE_CHECKING:
    from dvc_data.hashfile.db import HashFileDB

LISTING = ".dir"
"""The end of the hash of a folder, whose object lists the hashes of its files."""


def delete(root: Path, unneeded: Collection[str], needed: Collection[str]) -> None:
    """Remove the objects of data from the default remote, but no object that other data needs.

    Args:
        root: The folder of the repository.
        unneeded: DVC's hashes of the data that goes.
        needed: DVC's hashes of all data that stays.

    Raises:
        StoreError: The remote cannot be used, or lacks the list of a folder that stays: nothing of it was removed.
    """
    hashes = json.dumps({"unneeded": sorted(unneeded), "needed": sorted(needed)})
    command = [sys.executable, *launched(__name__, str(root))]
    outcome = subprocess.run(
        command, input=hashes, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    if outcome.returncode:
        reason = one_line((outcome.stderr or outcome.stdout).strip().rpartition("\n")[2], 300)
        raise StoreError(f"{root}: DVC's remote: {reason}: the data stays there; try `dvc status --cloud`")


def main() -> None:
    """Remove what the input calls unneeded, and keep what it calls needed."""
    from dvc.repo import Repo

    wanted = json.load(sys.stdin)
    with Repo(sys.argv[1]) as repo:
        cache, remote = repo.cache.local, repo.cloud.get_remote_odb()
        spared = {file for data_hash in wanted["needed"] for file in _objects(data_hash, cache, remote)}
        for data_hash in wanted["unneeded"]:
            path = remote.oid_to_path(data_hash)
            if remote.fs.exists(path):
                for file in _objects(data_hash, remote):  # the list of a folder is the last
                    if file not in spared and remote.fs.exists(remote.oid_to_path(file)):
                        remote.fs.remove(remote.oid_to_path(file))


def _objects(data_hash: str, *stores: HashFileDB) -> list[str]:
    """Return the hashes of the objects of data, from the first store that has the list; the list itself is the last."""
    if not data_hash.endswith(LISTING):
        return [data_hash]
    for store in stores:
        path = store.oid_to_path(data_hash)
        if store.fs.exists(path):
            with store.fs.open(path, "rb") as file:
                return [*(str(entry["md5"]) for entry in json.load(file)), data_hash]
    raise SystemExit(f"it lacks the list of the files of {data_hash}, which is needed")


if __name__ == "__main__":
    main()

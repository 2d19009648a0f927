"""Every act that changes a bytes' store is on this list, with what keeps a machine that lost its lease from harm.

A new one needs a line: the epoch in its name, or a rule why a late act harms nothing (decision 76).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.structure.nodes import walk

METHODS = {"put", "put_file", "create", "delete", "vacuum"}
STORES = {"store", "_store", "self", "table"}
"""What an object store, and a table of delta-rs, are called in `tasks/`."""
ACTS = {
    "tasks/host/object_store.py: create by check": "the layout's mark, the same bytes whoever writes it",
    "tasks/state/snapshots.py: put_file by _upload": "a file by its hash: the same bytes; before its manifest",
    "tasks/state/snapshots.py: put by save": "a manifest; its name begins with the epoch",
    "tasks/state/snapshots.py: put by renew": "a manifest in use anew, the same bytes, so that it counts as young",
    "tasks/state/snapshots.py: delete by sweep": "older than its rule, named by no manifest, after a look at the lease",
    "tasks/state/snapshots.py: delete by keep_newest": "a job's own epoch: its place has the epoch in its name",
    "tasks/state/step_store.py: delete by forget": "named by the own epoch or an earlier one",
    "tasks/state/step_store.py: delete by sweep": "older than its rule, by names that a later epoch has not",
    "tasks/gc/stored_files.py: delete by delete_stored": "needed by no row, under the lease, after a look at it",
    "tasks/state/shared_files.py: put_file by publish": "its name ends with the epoch, and the highest is read",
    "tasks/state/shared_files.py: put by publish": "the same, compressed",
    "tasks/state/shared_files.py: delete by publish": "named by an earlier epoch",
    "tasks/state/delta/places.py: put by write": "a log's file under a new name, before the commit that names it",
    "tasks/state/delta/places.py: delete by delete": "a log's files that no commit names, hours ago or by age of rows",
    "tasks/state/delta/log_table.py: create by _first_commit": "a table in a temporary folder",
    "tasks/state/delta/places.py: create by begin": "a log's first commit, unless another host was first",
    "tasks/state/delta/log_table.py: vacuum by unused": "only lists files that no commit names",
}


def acts(tree: ast.Module) -> Iterator[str]:
    """The calls of a store's methods, by the functions in which they are."""
    for function in walk(tree):
        if isinstance(function, ast.FunctionDef):
            for call in walk(function):
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                    continue
                receiver = call.func.value
                name = receiver.attr if isinstance(receiver, ast.Attribute) else getattr(receiver, "id", "").lower()
                if call.func.attr in METHODS and (name in STORES or name == "deltatable"):
                    yield f"{call.func.attr} by {function.name}"


def test_every_act_in_a_bytes_store_is_on_the_list(trees: dict[Path, ast.Module]) -> None:
    using = {path: tree for path, tree in trees.items() if path.parts[0] == "tasks" and names_a_store(tree)}
    assert {f"{path.as_posix()}: {act}" for path, tree in using.items() for act in acts(tree)} == set(ACTS)


def names_a_store(tree: ast.Module) -> bool:
    names = {node.id for node in walk(tree) if isinstance(node, ast.Name)}
    return bool(names & {"ObjectStore", "object_store", "StepStore", "Snapshots", "DeltaTable"})

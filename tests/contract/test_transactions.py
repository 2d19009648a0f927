"""A transaction that writes holds up all other writers: nothing in it waits for another store, process or lock."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.structure.nodes import walk

WRITES = {"database.writing", "writing", "database.updating", "updating"}
WAITS = {
    *("writing", "updating", "leased", "tried", "held", "confirm", "workspace_id"),  # locks, or a second transaction
    *("sleep", "join", "Popen", "urlopen", "ask", "client", "reaching_store", "deliver", "send"),
    *("read_text", "read_bytes", "read_json", "write_text", "write_bytes", "write_json", "upload", "fetch"),
}
"""Last names of calls that may take longer than a statement."""


def bodies(tree: ast.Module) -> Iterator[ast.With]:
    """Blocks whose last context is a transaction that writes."""
    for node in walk(tree):
        if isinstance(node, ast.With):
            call = node.items[-1].context_expr
            if isinstance(call, ast.Call) and ast.unparse(call.func) in WRITES:
                yield node


def test_nothing_waits_within_a_transaction_that_writes(trees: dict[Path, ast.Module]) -> None:
    found = [(path, block) for path, tree in trees.items() for block in bodies(tree)]
    assert len(found) > 20
    waiting = [
        f"{path}:{call.lineno}: {ast.unparse(call.func)}"
        for path, block in found
        for statement in block.body
        for call in walk(statement)
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in WAITS
    ]
    assert waiting == [], "compute first, write after"

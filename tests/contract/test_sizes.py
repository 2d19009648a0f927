"""Files and functions stay small. The exceptions may only shrink: one that is not needed any more fails."""

import ast
from collections import Counter
from pathlib import Path

from tests.structure.nodes import listed, walk

MOST_FILE_LINES = 450
MOST_FUNCTION_LINES = 50
MOST_FLOW_LINES = 35
MOST_FOLDER_FILES = 25

# Path, or path:function -> why it may be longer.
EXCEPTIONS: dict[str, str] = {}


def is_flow(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    called = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any(isinstance(one, ast.Name) and one.id == "flow" for one in called)


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def too_long(root: Path, path: Path, tree: ast.Module | None) -> dict[str, int]:
    """What of a file is over its ceiling, and how long it is."""
    text = (root / path).read_text()
    found = {str(path): len(text.splitlines())} if len(text.splitlines()) > MOST_FILE_LINES else {}
    for node in walk(tree) if tree else listed(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            ceiling = MOST_FLOW_LINES if is_flow(node) else MOST_FUNCTION_LINES
            if lines_of(node) > ceiling:
                found[f"{path}:{node.name}"] = lines_of(node)
    return found


def test_files_functions_and_flows_stay_under_their_ceilings(root: Path, trees: dict[Path, ast.Module]) -> None:
    others = [
        path.relative_to(root) for folder in ("tests", "infra", "projects") for path in (root / folder).rglob("*.py")
    ]
    found = {name: lines for path in [*trees, *others] for name, lines in too_long(root, path, trees.get(path)).items()}
    assert {name: lines for name, lines in found.items() if name not in EXCEPTIONS} == {}
    assert set(EXCEPTIONS) - set(found) == set(), "no exception any more: take it off the list"


def test_every_exception_says_why() -> None:
    assert all(len(reason) > 20 for reason in EXCEPTIONS.values())


def test_no_folder_holds_more_files_than_one_can_overlook(modules: list[Path]) -> None:
    counts = Counter(str(path.parent) for path in modules)
    assert {folder: count for folder, count in counts.items() if count > MOST_FOLDER_FILES} == {}

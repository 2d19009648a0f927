"""No private name of a library is used: the next version of the library may take it away without a word."""

import ast
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ALLOWED = {
    "_thread": "documented: starts a thread that takes no lock, as a signal handler must",
    "os._exit": "documented: ends a forked child",
    "sys._current_frames": "documented: the stacks of all threads",
    "torch._foreach_": "one call for a list of tensors, as torch's own optimisers make; has no public name",
    "aten._scaled_dot_product_": "operators that a policy of selective checkpointing names, as torch's guide does",
    "torch.utils._python_dispatch": "where torch documents TorchDispatchMode",
    "torch.utils._pytree": "leaves of nested tensors; has no public name",
    "torch._subclasses.fake_tensor": "where torch documents FakeTensorMode",
    "torch.distributed._composable.replicate_with_fsdp": "DDP of fully_shard's kind; has no public name yet",
    "mlflow.store.db.utils._initialize_tables": "a store's tables, made before several processes open it at once",
    "histogram._buckets": "many observations in one step: observe() takes one",
    "histogram._sum": "many observations in one step: observe() takes one",
    "pruner._get_bracket_id": "brackets by positions, because a kill shifts the trials' numbers; has no public name",
    "study._storage": "a trial of a dead process is marked; Study.tell takes no attribute",
    "trial._trial_id": "a trial of a dead process is marked; Study.tell takes no attribute",
}
"""Beginnings of dotted names, each with the reason why there is no other way."""

OURS = ("models", "tasks", "flows", "infra")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(tree: ast.Module) -> set[str]:
    """Every private name that a module of ours itself defines."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
    return {name for name in names if is_private(name)}


def private_names(tree: ast.Module, ours: set[str]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each private name that a module takes from elsewhere.

    A module's own classes may share them; `self` may have them from a base class of ours.
    """
    own = defined(tree)
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] not in OURS:
                for alias in names:
                    if any(map(is_private, [*module.split("."), alias.name])):
                        yield node.lineno, f"{module}.{alias.name}"
            case ast.Import(names=names):
                for alias in names:
                    if any(map(is_private, alias.name.split("."))):
                        yield node.lineno, alias.name
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in ours:
                continue
            case ast.Attribute(attr=name) if is_private(name) and name not in own:
                yield node.lineno, ast.unparse(node)


def is_allowed(name: str) -> bool:
    return any(name.startswith(allowed) for allowed in ALLOWED)


def test_no_private_name_of_a_library_is_used(trees: dict[Path, ast.Module]) -> None:
    ours = set().union(*map(defined, trees.values()))
    taken = [
        f"{path}:{line}: {name}"
        for path, tree in trees.items()
        for line, name in private_names(tree, ours)
        if not is_allowed(name)
    ]
    assert taken == []


def test_every_exception_is_used(trees: dict[Path, ast.Module]) -> None:
    ours = set().union(*map(defined, trees.values()))
    used = {name for tree in trees.values() for _, name in private_names(tree, ours)}
    assert [allowed for allowed in ALLOWED if not any(name.startswith(allowed) for name in used)] == []


def test_every_dependency_has_an_upper_bound(root: Path) -> None:
    """A library's next major version is tried before it is taken; the lock alone binds nobody who installs us."""
    document = tomllib.loads((root / "pyproject.toml").read_text())
    project = document["project"]
    wanted = [*project["dependencies"], *itertools.chain.from_iterable(project["optional-dependencies"].values())]
    assert len(wanted) > 60
    assert [line for line in (*wanted, *document["build-system"]["requires"]) if not re.search(r"<\d|==\d", line)] == []


def test_no_class_derives_from_a_class_of_the_http_server(trees: dict[Path, ast.Module]) -> None:
    """Such a class also takes part in the private names of its base; see `docs/decisions/0021`."""
    found = []
    for path, tree in trees.items():
        theirs = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("uvicorn", "httptools")
            for alias in node.names
        }
        bases = [base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
        names = [ast.unparse(base) for base in bases]
        found += [f"{path}: {name}" for name in names if name in theirs or name.startswith(("uvicorn.", "httptools."))]
    assert found == []

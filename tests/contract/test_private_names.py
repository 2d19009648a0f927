"""No private name of a library is used: the next version of the library may take it away without a word."""

import ast
import importlib.util
import itertools
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.host import stores
from tests.structure.nodes import walk

ALLOWED = {
    "_thread": "documented: starts a thread that takes no lock, as a signal handler must",
    "os._exit": "documented: ends a forked child",
    "sys._current_frames": "documented: the stacks of all threads",
    "torch._foreach_copy_": "one call for a list of tensors, as torch's own optimisers make; has no public name",
    "torch._foreach_lerp_": "one call for a list of tensors, as torch's own optimisers make; has no public name",
    "torch._foreach_mul_": "one call for a list of tensors, as torch's own optimisers make; has no public name",
    "aten._scaled_dot_product_cudnn_attention": "named by a policy of selective checkpointing, as torch's guide does",
    "aten._scaled_dot_product_efficient_attention": "named by such a policy",
    "aten._scaled_dot_product_flash_attention": "named by such a policy",
    "aten._scaled_dot_product_flash_attention_for_cpu": "named by such a policy",
    "torch.utils._python_dispatch.TorchDispatchMode": "where torch documents it",
    "torch.utils._pytree.tree_leaves": "leaves of nested tensors; has no public name",
    "torch._subclasses.fake_tensor.FakeTensorMode": "where torch documents it",
    "torch.distributed._composable.replicate_with_fsdp.replicate": "DDP of fully_shard's kind; has no public name yet",
    "mlflow.server.fastapi_app.app": "the app behind the workspace's secret; `mlflow server` asks for none (3.17.2)",
    "mlflow.server.constants": "how that app is told its stores, as `mlflow server` tells it (3.17.2)",
    "mlflow.store.db.utils": "the name of a logger, whose errors become a StoreError (3.17.2)",
    "dvc.repo.Repo": "objects of a remote by their hashes; `dvc gc` can be told only what stays (3.67.1)",
    "histogram._buckets": "many observations in one step: observe() takes one",
    "histogram._sum": "many observations in one step: observe() takes one",
    "super()._get_bracket_id": "brackets by positions, because a kill shifts the trials' numbers; has no public name",
}
"""Every private name that is used, each with the reason why there is no other way (docs/decisions/0072)."""

INSIDE = re.compile(
    r"(mlflow\.(server|store|utils|protos|tracking\._\w+)|prefect\.(server|_\w+)|great_expectations\.(core|\w+_engine)"
    r"|dvc\.(?!api|lock|yaml)\w+)(\.\w+)*"
)
"""Modules inside a library that its reference does not publish, although no underscore says so."""

PUBLISHED = {
    "great_expectations.core.ExpectationSuiteValidationResult": "in its reference of the API",
    "great_expectations.core.ExpectationValidationResult": "in its reference of the API",
    "prefect.server.api.server.create_app": "in Prefect's Python reference",
    "prefect.server.concurrency.lease_storage.filesystem": "a value of a setting",
}
"""Names within such modules that the library's own documentation gives to its users."""

OWN_SQL = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Columns of MLflow's tables that SQL of ours changes, after a move of the workspace: MLflow has no call that moves
artifacts' places, nor a relative artifact root (docs/decisions/0083, tried with 3.17.2)."""

PATCHED = {
    "sys.unraisablehook": "a signal's exception in a callback of C code, which only this hook sees",
    "sys.argv": "of a process that from here on is Prefect's own program",
    "os.environ": "settings of a process, before its libraries read them",
    "torch.backends.cudnn.allow_tf32": "documented setting, of a process that trains",
    "torch.backends.cudnn.benchmark": "documented setting, of a process that trains",
    "torch.utils.deterministic.fill_uninitialized_memory": "documented setting, of a process that trains",
}
"""Every attribute of a library that is set, each with the reason why no other thread minds."""

OURS = ("models", "tasks", "flows", "infra")


NAMED_TUPLES = ("_asdict", "_fields", "_make", "_replace")
"""Public names of every named tuple, which begin so as to leave all others to its fields."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLES


def is_inside(name: str) -> bool:
    """Return whether a dotted name is of a module that its library keeps to itself."""
    return INSIDE.fullmatch(name) is not None and name not in PUBLISHED


def defined(tree: ast.Module) -> set[str]:
    """Every private name that a module of ours itself defines."""
    names = set()
    for node in walk(tree):
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
    for node in walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] not in OURS:
                for alias in names:
                    if any(map(is_private, [*module.split("."), alias.name])) or is_inside(f"{module}.{alias.name}"):
                        yield node.lineno, f"{module}.{alias.name}"
            case ast.Import(names=names):
                for alias in names:
                    if any(map(is_private, alias.name.split("."))) or is_inside(alias.name):
                        yield node.lineno, alias.name
            case ast.Constant(value=str(text)) if is_inside(text):
                yield node.lineno, text
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in ours:
                continue
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name) if is_private(name):
                yield node.lineno, ast.unparse(node)
            case ast.Attribute(attr=name) if is_private(name) and name not in own:
                yield node.lineno, ast.unparse(node)


def patches(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each attribute of a library's module or class that a module of ours sets."""
    libraries = set()
    for node in walk(tree):
        match node:
            case ast.Import(names=names):
                libraries |= {(alias.asname or alias.name).partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] not in OURS:
                libraries |= {alias.asname or alias.name for alias in names}
    for node in walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Store()) if ast.unparse(node).partition(".")[0] in libraries:
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="sys"), attr="setswitchinterval")):
                yield node.lineno, ast.unparse(node)


@pytest.fixture(scope="module")
def taken(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    """Where each private name is taken from elsewhere."""
    ours = set().union(*map(defined, trees.values()))
    places: dict[str, list[str]] = {}
    for path, tree in trees.items():
        for line, name in private_names(tree, ours):
            places.setdefault(name, []).append(f"{path}:{line}: {name}")
    return places


def test_no_private_name_of_a_library_is_used(taken: dict[str, list[str]]) -> None:
    assert [place for name, places in taken.items() if name not in ALLOWED for place in places] == []


def test_every_exception_is_used(taken: dict[str, list[str]]) -> None:
    assert sorted(ALLOWED.keys() - taken.keys()) == []


def test_every_private_name_is_where_it_was() -> None:
    """A library that moves one says nothing: here it is said before a user's loop meets it."""
    import optuna
    import prometheus_client
    import torch

    holders: dict[str, object] = {
        "aten": torch.ops.aten,
        "histogram": prometheus_client.Histogram("a", "b", registry=None),
        "super()": optuna.pruners.HyperbandPruner,
    }
    for name in ALLOWED:
        if name.startswith("mlflow.server."):  # served by tests/integration/test_mlflow_page.py
            continue
        holder, _, last = name.rpartition(".")
        found = holders.get(holder) or (pkgutil.resolve_name(holder) if holder else importlib)
        assert hasattr(found, last) or importlib.util.find_spec(name), name


def test_own_sql_changes_no_other_column_of_mlflow() -> None:
    assert stores.PLACES == OWN_SQL


def test_nothing_of_the_whole_process_is_patched(trees: dict[Path, ast.Module]) -> None:
    """Another thread would see it, and two that overlap would leave it patched for good."""
    found = {name: f"{path}:{line}: {name}" for path, tree in trees.items() for line, name in patches(tree)}
    assert [place for name, place in found.items() if name not in PATCHED] == []
    assert sorted(PATCHED.keys() - found.keys()) == []


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
            for node in walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("uvicorn", "httptools")
            for alias in node.names
        }
        bases = [base for node in walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
        names = [ast.unparse(base) for base in bases]
        found += [f"{path}: {name}" for name in names if name in theirs or name.startswith(("uvicorn.", "httptools."))]
    assert found == []

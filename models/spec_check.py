"""What a spec, a user's code and the header of the data decide together, looked at before anything costly runs."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from models.data.header import check_names, header_of
from models.errors import DataError, UsageError
from models.nets.catalogue import CATALOGUE, net_name
from models.own_code import check_own_code
from models.refs import is_own_code
from models.search import check_space, with_params
from models.spec import Dimension, Spec, Train

_TASK_OF_KIND = {"series": "regression", "text": "language"}


def check_spec(spec: Spec, base: Path) -> None:
    """Refuse what can be known to fail from the spec, the project's own files and the header of a local table.

    Net, arguments, metric, searched values, precision, own references, and the columns that the spec names. Nothing of
    the user's is run. `run`, `plan` and `doctor` all call it.

    Args:
        spec: The project's.
        base: The folder that holds the spec.

    Raises:
        UsageError: Says the key, what was got, what was expected.
        DataError: The source has no such column, or its header cannot be read.
    """
    check_own_code(spec, base)
    net = net_name(spec.model.net, spec.data.kind)
    _check_arguments(net, "model.arguments", list(spec.model.arguments))
    _check_metric(spec, base)
    _check_search(spec, net)
    _check_precision(spec.train, "train.precision")
    path = _local_path(spec.data.source, base)
    if path is not None:
        _check_columns(spec, path)


def _check_arguments(net: str, key: str, names: Sequence[str]) -> None:
    """Of a ready net: its factory's parameters are read from its source, so that torch is not imported for it."""
    known = _parameters(CATALOGUE[net].reference) if net in CATALOGUE else None
    for name in names if known is not None else ():
        if name not in (known or ()):
            near = difflib.get_close_matches(name, known or (), 1)
            cure = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known or ())}"
            raise UsageError(f"{key}: {net} has no argument {name!r}: {cure}")


def _parameters(reference: str) -> list[str] | None:
    """The names that a factory takes beside the sizes; None where it takes any, or cannot be seen."""
    module, _, name = reference.partition(":")
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return None
    for node in ast.parse(Path(found.origin).read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            return None if node.args.kwarg else [one.arg for one in arguments if one.arg != "sizes"]
    return None


def _check_metric(spec: Spec, base: Path) -> None:
    """By the task, where the spec says it or the kind of data decides it; else by its name alone."""
    name = spec.goal.metric
    if name is None or is_own_code(name):
        return
    from models.judge.metrics import METRICS, resolve_metric

    task = spec.data.task or _TASK_OF_KIND.get(spec.data.kind)
    if task is not None:
        resolve_metric(name, task, base, spec.goal.direction)  # type: ignore[arg-type]  # one of the tasks
    elif name not in METRICS:
        near = difflib.get_close_matches(name, list(METRICS), 1)
        cure = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(sorted(METRICS))}"
        raise UsageError(f"goal.metric: got {name!r}, {cure}, or `./file.py:function` of your own")


def _check_search(spec: Spec, net: str) -> None:
    """Every value that a trial may draw fits its key: one that does not would end the search at that trial."""
    space = spec.search.space or {}
    check_space(space, net)
    _check_arguments(net, "search.space", [path.partition(".")[2] for path in space if path.startswith("model.")])
    for path, dimension in space.items():
        for value in _values(dimension):
            _check_precision(with_params(spec.model, spec.train, {path: value})[1], f"search.space.{path}")


def _values(dimension: Dimension) -> Iterator[Any]:
    yield from dimension.choices or ()
    for end in (dimension.low, dimension.high):
        if end is not None:
            yield int(end) if dimension.integer else end


def _check_precision(train: Train, key: str) -> None:
    if train.precision == "fp8":
        raise UsageError(f"{key}: got fp8, expected fp32, bf16 or fp16: products in fp8 are not built in yet")


def _local_path(source: str, base: Path) -> Path | None:
    """The file or folder that a source names; None where it is none of this machine, or not there yet.

    Raises:
        UsageError: It is an address, or neither a file nor a folder: reading a pipe or a device would never end.
    """
    if is_own_code(source) or re.match(r"(pypi|npm|debian):", source):
        return None
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", source):
        raise UsageError(
            f"data.source: got {source!r}, expected a file, a folder, a package (pypi:, npm:, debian:) or your own "
            "function `./source.py:load`, which may fetch it"
        )
    try:
        path = base / Path(source).expanduser()
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None  # ingest says so
    except (RuntimeError, ValueError, OSError) as error:  # no such user, no such name, links that name each other
        raise UsageError(f"data.source: got {source!r}, which cannot be looked at: {error}: name a file") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UsageError(f"data.source: {path} is neither a file nor a folder, expected a table: copy it into a file")
    return path


def _check_columns(spec: Spec, path: Path) -> None:
    """The columns that the spec names, in a local CSV or Parquet file; others are read first."""
    data = spec.data
    if data.features.make or data.kind == "text" or not path.is_file():
        return
    try:
        names = header_of(path)
    except (OSError, DataError):
        return  # ingest says what is wrong with the file
    if names is not None:
        check_names(names, data, spec.judge.slices)

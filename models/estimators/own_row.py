"""The row of a family that a team writes: a plain dict of literals and of functions, which is read, not run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from models.errors import UsageError, did_you_mean
from models.estimators.rows import CLASSES, QUANTILES, Categories, EstimatorRow, Numbers
from models.project_spec.references import FAMILY, short_name
from models.project_spec.row_source import (
    RowForm,
    RowKey,
    is_flag,
    is_function,
    is_record,
    is_texts,
    one_of,
    read_row,
    row_file,
    some_of,
)
from models.project_spec.search import Dimension
from models.project_spec.user_code import factory_of

FUNCTIONS = {
    "fit": ("data", "settings", "before"),
    "predict": ("model", "x"),
    "onnx": ("model", "width"),
    "estimator": ("settings",),
}
"""The functions of a row, and what each takes: the first three, or the last."""
SETTINGS = ("rounds", "seed", "threads", "quantile")
"""What stands in `settings` beside the arguments."""
_function = RowKey("a function of the file", is_function, None)


def _is_space(value: Any) -> bool:
    try:
        return is_record(value) and bool([Dimension.model_validate(dimension) for dimension in value.values()])
    except ValidationError:
        return False


ROW_FORM = RowForm(
    FAMILY,
    {
        **dict.fromkeys(FUNCTIONS, _function),
        "tasks": some_of((*CLASSES, *QUANTILES)),
        "output": one_of(("probabilities", "scores")),
        "numbers": one_of(get_args(Numbers), "prepared"),
        "gaps": RowKey("True or False", is_flag, default=False),
        "categories": one_of(get_args(Categories), "index"),
        "weights": RowKey("True or False", is_flag, default=True),
        "own_split": RowKey("True or False", is_flag, default=False),
        "rounds": RowKey("a whole number above 0", lambda value: type(value) is int and value > 0, 1),
        "arguments": RowKey("a dict of arguments and their defaults", is_record, {}),
        "space": RowKey("dimensions such as {'depth': {'low': 2, 'high': 8, 'integer': True}}", _is_space, {}),
        "modules": RowKey("a list of the packages that it imports", is_texts, ()),
        "distributions": RowKey("a list of their names in a package index", is_texts, ()),
    },
)
"""The keys of a team's own family: it learns and converts by three functions, or by one that returns an estimator."""


def own_row(reference: str, base: Path, key: str) -> EstimatorRow:
    """Return the row of a team's file, whose functions the fit resolves by the same reference.

    Raises:
        UsageError: There is no such file or row, or the row says something that cannot be.
    """
    row = read_row(reference, base, ROW_FORM, key)
    where = f"{key}: {reference}"
    _check_functions(row, reference, base, where)
    names = tuple(row["arguments"])
    for name in SETTINGS:
        if name in names:
            raise UsageError(f"{where}: arguments: {name!r} is a setting that Loopline hands over: take another name")
    for name in row["space"]:
        if name not in names:
            cure = did_you_mean(name, names, "name it in `arguments`, with its default")
            raise UsageError(f"{where}: space: {name!r} is no argument of the row: {cure}")
    facts: dict[str, Any] = {
        fact: tuple(value) if isinstance(value, list) else value
        for fact, value in row.items()
        if fact not in (*FUNCTIONS, "arguments", "rounds")
    }
    return EstimatorRow(
        name=short_name(reference),
        package="file",
        **facts,
        arguments=names,
        defaults=row["arguments"],
        rounds="rounds" if row["fit"] and row["rounds"] > 1 else "",
        num_rounds=row["rounds"],
        quantile="quantile",
    )


def _check_functions(row: Mapping[str, Any], reference: str, base: Path, where: str) -> None:
    """Refuse a row that neither fits and converts by itself nor returns an estimator, or by functions of other form."""
    names = [name for name in FUNCTIONS if row[name] is not None]
    if names not in (["fit", "predict", "onnx"], ["estimator"]):
        raise UsageError(
            f"{where}: got {', '.join(names) or 'no function'}, expected fit, predict and onnx, or estimator in their "
            "place"
        )
    path = row_file(reference, base, where)
    for name in names:
        function = factory_of(path, str(row[name]))
        if function is None or function.args.vararg is not None:
            continue  # imported, or a class
        num, num_optional = len(function.args.posonlyargs + function.args.args), len(function.args.defaults)
        if not num - num_optional <= len(FUNCTIONS[name]) <= num:
            raise UsageError(
                f"{where}: {row[name]} takes {num} arguments, expected {name}({', '.join(FUNCTIONS[name])}) (line "
                f"{function.lineno})"
            )

"""The arguments of a built-in net, read from the source of its factory, so that nothing imports torch."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from models.errors import UsageError, did_you_mean
from models.files import read_python
from models.kinds.data_kind import KIND_NAMES
from models.nets.catalogue import CATALOGUE
from models.project_spec.blocks import Spec
from models.project_spec.user_code import factory_of

MOST_SIZE = 1 << 16
"""Of a whole number of a ready net, such as its width: beyond, it has more weights than any machine holds."""
Size = Annotated[int, Field(ge=1, le=MOST_SIZE)]
_Count, _Leaves = Annotated[int, Field(ge=0, le=MOST_SIZE)], Annotated[int, Field(ge=2, le=MOST_SIZE)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Share, _Part = Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(gt=0, le=1)]
_Penalty = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_PLAIN = {"int": Size, "float": _Number, "bool": bool, "str": str}
_RANGES: dict[str, Any] = {
    **dict.fromkeys(("dropout", "word_dropout"), _Share),
    **dict.fromkeys(("feature_fraction", "feature_fraction_bynode", "bagging_fraction"), _Part),
    **dict.fromkeys(("min_gain_to_split", "lambda_l1", "lambda_l2", "cat_smooth", "l2"), _Penalty),
    **dict.fromkeys(("lookback", "min_data_in_leaf"), _Count),
    **dict.fromkeys(("num_leaves", "max_bin"), _Leaves),
    "learning_rate": Annotated[float, Field(gt=0, allow_inf_nan=False)],
    "max_depth": Annotated[int, Field(ge=-1, le=MOST_SIZE)],
}
"""What an argument may be, by its name, which means the same in every ready net; a name that is not here is plain.

Source: `torch.nn.Dropout`; the checks in LightGBM's list of parameters.
"""
_HEADS = {"transformer": 1, "decoder": 2}
"""Nets whose width is a multiple of so many times their heads."""


class Argument(NamedTuple):
    """An argument of a net as its source declares it; `default`: None where it has to be set."""

    name: str
    annotation: ast.expr | None
    default: ast.expr | None


def whole_numbers(net: str, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the arguments of a net of the catalogue that are whole numbers, such as its width, with their defaults."""
    declared = _declared(net)
    if declared is None:
        return {}
    usual = {argument.name: ast.literal_eval(argument.default) for argument in declared if argument.default is not None}
    return {name: value for name, value in {**usual, **arguments}.items() if type(value) is int}


@functools.cache
def argument_types(net: str) -> dict[str, Any] | None:
    """Return the type of each argument of a net of the catalogue, Any where it is not plain; None for an own net."""
    declared = _declared(net)
    if declared is None:
        return None
    return {argument.name: _type(argument) for argument in declared if argument.name != "sizes"}


@functools.cache
def _declared(net: str) -> list[Argument] | None:
    """Return the parameters of a net's factory, or the fields of the class of its arguments; None for an own net."""
    if net not in CATALOGUE:
        return None
    module, _, name = CATALOGUE[net].reference.partition(":")
    module_spec = importlib.util.find_spec(module)
    if module_spec is None or module_spec.origin is None:
        return None
    for node in read_python(Path(module_spec.origin)).body:
        match node:
            case ast.FunctionDef(name=defined, args=ast.arguments(args=args, defaults=defaults)) if defined == name:
                values = [*[None] * (len(args) - len(defaults)), *defaults]
                return [Argument(arg.arg, arg.annotation, value) for arg, value in zip(args, values, strict=True)]
            case ast.ClassDef(name=defined, body=body) if defined == name:
                fields = [field for field in body if isinstance(field, ast.AnnAssign)]
                return [Argument(ast.unparse(field.target), field.annotation, field.value) for field in fields]
    return None


def width_unit(net: str, arguments: Mapping[str, Any]) -> int:
    """Return what the width of a net of the catalogue must be a multiple of, from its arguments and defaults."""
    return _HEADS[net] * whole_numbers(net, arguments)["heads"] if net in _HEADS else 1


def check_own_net(spec: Spec, net: str, base: Path) -> None:
    """Check the arguments of the user's own net: sizes of its kind of data, and those of `model.arguments`.

    Args:
        spec: The project's.
        net: The reference.
        base: The folder that holds the spec.

    Raises:
        UsageError: Names the argument.
    """
    file, _, name = net.rpartition(":")
    function = factory_of(base / file, name) if file.endswith(".py") else None
    if function is None:
        return
    arguments = [*function.args.posonlyargs, *function.args.args]
    optional = {parameter.arg for parameter in arguments[len(arguments) - len(function.args.defaults) :]}
    for parameter, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        arguments.append(parameter)
        optional |= {parameter.arg} if default is not None else set()
    names = [parameter.arg for parameter in arguments if parameter.arg != "self"]
    from models.nets.sizes import COMMON, SIZES_OF_KIND

    offered = (*COMMON, *SIZES_OF_KIND[spec.data.kind])
    for argument in spec.model.arguments:
        if argument not in names and function.args.kwarg is None:
            cure = did_you_mean(argument, names, "remove it")
            raise UsageError(f"model.arguments.{argument}: {net} has no argument {argument!r}: {cure}")
    missing = [name for name in names if name not in optional and name not in (*offered, *spec.model.arguments)]
    if missing:
        owners = [kind for kind in KIND_NAMES if missing[0] in SIZES_OF_KIND[kind]]
        owner = f", a size of kind {owners[0]}" if owners else ""
        raise UsageError(
            f"model.net: {net} needs {missing[0]!r}{owner}: give it in model.arguments, or take one of the "
            f"sizes of kind {spec.data.kind}: {', '.join(offered)}"
        )


def _type(argument: Argument) -> Any:
    """Return a plain type with its range, or a choice of values, as it is written; Any for the rest."""
    match argument.annotation:
        case ast.Name(id=name) if name in _PLAIN:
            return _RANGES.get(argument.name, _PLAIN[name])
        case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
            return Literal[ast.literal_eval(values)]
    return Any

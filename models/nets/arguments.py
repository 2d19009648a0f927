"""The arguments of a built-in net, read from the source of its factory, so that nothing imports torch."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from models.files import read_python
from models.nets.catalogue import CATALOGUE

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


def whole_numbers(net: str, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the arguments of a net of the catalogue that are whole numbers, such as its width, with their defaults."""
    factory = _factory(net)
    if factory is None:
        return {}
    names, defaults = factory.args.args, factory.args.defaults
    usual = {
        one.arg: ast.literal_eval(value)
        for one, value in zip(names[len(names) - len(defaults) :], defaults, strict=True)
    }
    return {name: value for name, value in {**usual, **arguments}.items() if type(value) is int}


@functools.cache
def argument_types(net: str) -> dict[str, Any] | None:
    """Return the type of each argument of a net of the catalogue, Any where it is not plain.

    Returns:
        None for a net of the user's own, and for one that takes any argument.
    """
    node = _factory(net)
    if node is None or node.args.kwarg:
        return None
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return {one.arg: _type(one) for one in arguments if one.arg != "sizes"}


@functools.cache
def _factory(net: str) -> ast.FunctionDef | None:
    """Return the function whose parameters are the arguments of a net; None for a net of the user's own."""
    if net not in CATALOGUE:
        return None
    module, _, name = (CATALOGUE[net].arguments or CATALOGUE[net].reference).partition(":")
    module_spec = importlib.util.find_spec(module)
    if module_spec is None or module_spec.origin is None:
        return None
    for node in read_python(Path(module_spec.origin)).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None


def width_unit(net: str, arguments: Mapping[str, Any]) -> int:
    """Return what the width of a net of the catalogue must be a multiple of, from its arguments and defaults."""
    return _HEADS[net] * whole_numbers(net, arguments)["heads"] if net in _HEADS else 1


def _type(argument: ast.arg) -> Any:
    """Return a plain type with its range, or a choice of values, as it is written; Any for the rest."""
    match argument.annotation:
        case ast.Name(id=name) if name in _PLAIN:
            return _RANGES.get(argument.arg, _PLAIN[name])
        case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
            return Literal[ast.literal_eval(values)]
    return Any

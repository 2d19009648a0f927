"""The arguments of a built-in net, read from the source of its factory, so that nothing imports torch."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from models.nets.catalogue import CATALOGUE

Size = Annotated[int, Field(le=1 << 16)]
"""A whole number of a ready net, such as its width: beyond, it has more weights than any machine holds."""
_PLAIN = {"int": Size, "float": float, "bool": bool, "str": str}


@functools.cache
def argument_types(net: str) -> dict[str, Any] | None:
    """Return the type of each argument of a net of the catalogue, Any where it is not plain.

    Returns:
        None for a net of the user's own, and for one that takes any argument.
    """
    if net not in CATALOGUE:
        return None
    module, _, name = (CATALOGUE[net].arguments or CATALOGUE[net].reference).partition(":")
    module_spec = importlib.util.find_spec(module)
    if module_spec is None or module_spec.origin is None:
        return None
    for node in ast.parse(Path(module_spec.origin).read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            return None if node.args.kwarg else {one.arg: _type(one) for one in arguments if one.arg != "sizes"}
    return None


def _type(argument: ast.arg) -> Any:
    """Return a plain type or a choice of values, as it is written; Any for the rest."""
    match argument.annotation:
        case ast.Name(id=name) if name in _PLAIN:
            return _PLAIN[name]
        case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
            return Literal[ast.literal_eval(values)]
    return Any

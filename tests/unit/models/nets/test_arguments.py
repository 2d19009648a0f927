import inspect
from pathlib import Path
from typing import Literal

import pytest

from models.nets.arguments import Size, argument_types
from models.nets.catalogue import CATALOGUE
from models.project_spec.references import resolve


@pytest.mark.parametrize("net", CATALOGUE)
def test_the_source_names_the_arguments_that_the_factory_has(net: str) -> None:
    entry = CATALOGUE[net]
    factory = resolve("factory", Path(), {"factory": entry.reference})
    known = set(argument_types(net) or {})
    assert known == set(inspect.signature(factory).parameters) - {"sizes"}
    assert known >= {path.removeprefix("model.") for path in entry.space if path.startswith("model.")}


def test_types_are_read_where_they_are_plain() -> None:
    known = argument_types("mlp")
    assert known is not None
    assert (known["hidden"], known["norm"]) == (Size, Literal["batch", "layer", "none"])
    assert argument_types("./own.py:Net") is None

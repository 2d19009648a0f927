"""How an estimator is searched: its space and the settings of its first trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from models.estimators.source import installed_versions, row_of_source
from models.nets.catalogue import CatalogueEntry
from models.project_spec.references import ESTIMATOR_PACKAGES
from models.project_spec.search import Dimension

_CONVERTERS = {"sklearn": ("skl2onnx",), "xgboost": ("onnxmltools",), "catboost": ()}
"""What a fit imports beside a package, to make a graph."""


def read_row(row: CatalogueEntry, net: str, base: Path) -> CatalogueEntry:
    """Return a family's row with the space, the defaults, the libraries and the modules of an estimator.

    Args:
        row: That of all references of its sort.
        net: The reference.
        base: The folder of the spec.

    Raises:
        UsageError: The reference names no estimator.
    """
    facts = row_of_source(net, base)
    packages = [name for name in facts.modules if name in ESTIMATOR_PACKAGES]
    return replace(
        row,
        space={f"model.{name}": Dimension.model_validate(fields) for name, fields in facts.space.items()},
        defaults={f"model.{name}": value for name, value in facts.defaults.items()},
        libraries=tuple(installed_versions(facts)),
        modules=tuple(module for name in packages for module in (name, *_CONVERTERS[name])),
    )

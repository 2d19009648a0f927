"""The keys of a spec that decide a model, flat, as a run's parameters: those that the spec sets, and those chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.project_spec.blocks import Spec

BLOCKS = ("goal", "data", "search", "judge")
"""The blocks whose keys are known before the training; `model` and `train` follow from the search."""
SCALARS = (str, int, float, bool)


def set_parameters(spec: Spec) -> dict[str, Any]:
    """Return what the spec sets of `BLOCKS`, nested keys joined by dots; lists and the search's ranges are left out."""
    blocks = spec.model_dump(mode="json", exclude_unset=True, include=set(BLOCKS), exclude={"search": {"space"}})
    return flat(blocks)


def trained_parameters(spec: Spec, net: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a model was trained with: those that the spec sets, replaced by the chosen ones.

    Args:
        spec: The spec.
        net: The net that was trained.
        chosen: Values by spec path, flat: those of the search.
    """
    train = flat({"train": spec.train.model_dump(mode="json", exclude_unset=True)})
    return {"model.net": net, **flat({"model": dict(spec.model.arguments)}), **train, **chosen}


def flat(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the scalars of nested mappings by their keys joined by dots."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            leaves |= flat(value, name)
        elif isinstance(value, SCALARS) and value != "":
            leaves[name] = value
    return leaves

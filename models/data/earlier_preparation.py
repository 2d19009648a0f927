"""The reader of `preparation.json` in its version 1, in which each kind of input had a field of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIELDS = {"numeric": "numeric", "categorical": "categorical", "datetimes": "datetime", "texts": "text"}
"""The kind of the inputs that each field held as they are stored today."""
_OF_SERIES = ("source", "ahead")
"""Fields of numbers that features of `data.features.fit` had too, always empty."""


def from_version_1(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return what version 1 stored in the form of version 2: one list of inputs, each with its kind.

    Files from before there was a kind of input lack its field.
    """
    rest = {name: value for name, value in stored.items() if name not in (*_FIELDS, "fitted", "pixels")}
    inputs = [{**part, "kind": kind} for field, kind in _FIELDS.items() for part in stored.get(field, ())]
    for part in stored.get("fitted", ()):
        fields = {name: value for name, value in part.items() if name not in _OF_SERIES}
        inputs.append({**fields, "kind": "fitted"})
    pixels = stored.get("pixels")
    if pixels is not None:
        inputs.append({**pixels, "kind": "image", "name": pixels["image"]["column"]})
    return {**rest, "version": 2, "inputs": inputs}

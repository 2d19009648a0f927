"""The inputs of a model as rows of its card."""

from __future__ import annotations

from models.data.preparation import Preparation


def input_rows(preparation: Preparation) -> list[dict[str, str]]:
    """Return the name, the kind and what is known of each input, in the order of tensors."""
    if preparation.characters:
        inputs = f"{len(preparation.characters.alphabet)} characters, windows of {preparation.characters.length}"
        return [{"input": preparation.characters.column, "kind": "text", "values": inputs}]
    origins = _origins(preparation)
    return [
        {"input": part.name, "kind": part.kind, "values": origins.get(part.name, "") + part.summary}
        for part in preparation.inputs
    ]


def _origins(preparation: Preparation) -> dict[str, str]:
    """Return what each feature of `data.features.fit` is made of, as the beginning of a text."""
    if preparation.transform:
        return {part.name: "transform; " for part in preparation.fitted}
    return {lookup.name: f"{len(lookup.keys):,} values of {lookup.column}; " for lookup in preparation.lookups}

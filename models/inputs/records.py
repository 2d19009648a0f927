"""The table of the kinds of inputs: their records, in the order of the columns of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from models.errors import UsageError, did_you_mean
from models.inputs.categorical.record import CategoricalInput
from models.inputs.datetime.record import DatetimeInput
from models.inputs.fitted.record import FittedInput
from models.inputs.gap.record import GapInput
from models.inputs.image.record import ImageInput
from models.inputs.numeric.record import NumericInput
from models.inputs.record import NUMBERS, TEXTS, InputRecord
from models.inputs.score.record import ScoreInput
from models.inputs.target_mean.record import TargetMeanInput
from models.inputs.text.record import TextColumn

RECORDS: dict[str, type[InputRecord]] = {
    "numeric": NumericInput,
    "gap": GapInput,
    "score": ScoreInput,
    "target_mean": TargetMeanInput,
    "fitted": FittedInput,
    "categorical": CategoricalInput,
    "datetime": DatetimeInput,
    "text": TextColumn,
    "image": ImageInput,
}
"""A row for each kind. Weights are learnt for columns of tensors in this order: another one is another model."""
_PLACES = {kind: place for place, kind in enumerate(RECORDS)}


def in_order(inputs: Iterable[InputRecord]) -> list[InputRecord]:
    """Return inputs in the order of the columns of tensors: kind by kind, otherwise as they come."""
    return sorted(inputs, key=lambda part: _PLACES[part.kind])


def by_kind(inputs: Iterable[InputRecord]) -> dict[str, list[InputRecord]]:
    """Return the inputs of each kind that has some, in the order of the columns of tensors."""
    return {kind: list(parts) for kind, parts in groupby(in_order(inputs), key=lambda part: part.kind)}


def record_of(stored: InputRecord | Mapping[str, Any]) -> InputRecord:
    """Return an input from its stored form.

    Raises:
        ValueError: There is no such kind.
    """
    if isinstance(stored, InputRecord):
        return stored
    kind = stored.get("kind")
    if kind not in RECORDS:
        raise ValueError(
            f"got an input of kind {kind!r}, expected one of {', '.join(RECORDS)}: the file is of another version of "
            "Loopline; install that one"
        )
    return RECORDS[kind].model_validate(stored)


def owners(inputs: Iterable[InputRecord]) -> list[str]:
    """Return the name of the input behind each column of the tensor `numeric`, in its order."""
    return [name for kind, parts in by_kind(inputs).items() for name in RECORDS[kind].owners(parts)]


def column_kinds() -> list[str]:
    """Return the kinds that a spec may give a column: those of which rows give the values."""
    forms = {kind: record.model_fields["form"].default for kind, record in RECORDS.items()}
    return [kind for kind, form in forms.items() if form in (*NUMBERS, *TEXTS)]


def check_kinds(kinds: Mapping[str, str]) -> None:
    """Refuse a kind in `data.features.kinds` that does not exist.

    Raises:
        UsageError: Names the column, and the nearest kind.
    """
    names = column_kinds()
    for column, kind in kinds.items():
        if kind not in names:
            hint = did_you_mean(kind, names, "name one of them, or leave the column out of it")
            expected = ", ".join(map(repr, names))
            raise UsageError(f"data.features.kinds.{column}: got {kind!r}, expected one of {expected}: {hint}")

"""A request for predictions, whichever protocol it came by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from models.inference.input_schema import InputRows, InputSchema

if TYPE_CHECKING:
    from models.inference.loaded_model import LoadedModel


def _accepted(*_: object) -> None:
    """Refuse nothing."""


@dataclass(slots=True)
class PredictRequest:
    """A prediction request: a protocol fills in what its body says, its endpoint the rest.

    Args:
        rows: Reads the rows for the version that answers; raises `DataError` if they do not fit the version.
        name: The model's name; None for the only served model.
        version: The version that must answer; None: the release picks it.
        key: The key by which the release picks a version: the client's request id; empty for none.
        ids: The client's ids of the rows; None: ids are generated.
        deadline: When the client stops waiting, by `time.monotonic`; None for the default.
        is_large: Whether the rows are read and logged outside the event loop.
        parsed: What the body held, row by row; it may be emptied once `rows` was called.
        check_version: Refuses what the version cannot answer, before the rows are read, by `DataError`.
        check_rows: The same with the rows, before they are predicted and logged.
    """

    rows: Callable[[InputSchema], InputRows]
    name: str | None = None
    version: str | None = None
    key: str = ""
    ids: Sequence[str] | None = None
    deadline: float | None = None
    is_large: bool = False
    parsed: list[Any] = field(default_factory=list)
    check_version: Callable[[LoadedModel], None] = _accepted
    check_rows: Callable[[LoadedModel, InputRows], None] = _accepted

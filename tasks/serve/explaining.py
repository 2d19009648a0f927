"""`?explain=1`: beside each answer, what each column contributed to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.datastructures import QueryParams

from models.errors import DataError
from models.inference.explain import Explainer
from models.inference.loaded_model import LoadedModel
from models.inference.rows import InputRows
from models.serving import http_errors as refusals
from tasks.serve.answering import PredictResponse
from tasks.serve.batcher import DEADLINE_S
from tasks.serve.request_context import current

if TYPE_CHECKING:
    from tasks.serve.state import WorkerState

EXPLAIN = "explain"
_ASKED = {"0": False, "false": False, "1": True, "true": True}


def is_asked(query: bytes) -> bool:
    """Whether a caller wants explanations.

    Args:
        query: What stands behind the question mark of the address.

    Raises:
        Refusal: It says neither yes nor no.
    """
    if not query:
        return False
    given = QueryParams(query).get(EXPLAIN, "0")
    if given not in _ASKED:
        raise refusals.unreadable(f"{EXPLAIN}: got {given[:40]!r}, expected 1 or 0")
    return _ASKED[given]


def check(served: LoadedModel, rows: InputRows) -> None:
    """Say no, before they are answered and written down, to rows that cannot be explained.

    Raises:
        DataError: There is no background to compare with, or they are too many.
    """
    _explainer(served).check(rows.num_rows)


async def explanations(state: WorkerState, found: PredictResponse) -> list[dict[str, Any]]:
    """One for each row that was answered; the model is asked once more, for all of them at once.

    Raises:
        Refusal: The queue is full, or the deadline passed: the answers are written down nevertheless.
    """
    explainer = _explainer(found.served)
    question = explainer.question(found.rows.feed)
    answers = await state.engine.answer(found.served, question, current().until(None, DEADLINE_S))
    return [each.told() for each in explainer.explanations(found.rows.num_rows, answers.outputs)]


def _explainer(served: LoadedModel) -> Explainer:
    explainer = served.explainer
    if explainer is None:
        kept = served.preparation.kind in ("table", "series")
        why = "it keeps no background rows: train again" if kept else "only tables and series are explained by column"
        raise DataError(f"explain: version {served.version} of {served.project} cannot be: {why}")
    return explainer

"""`?explain=1`: returns the contribution of each column beside each prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.datastructures import QueryParams

from models.inference.input_schema import InputRows
from models.inference.loaded_model import LoadedModel
from models.serving import http_errors
from tasks.serve.answering import PredictResponse
from tasks.serve.batcher import DEADLINE_S
from tasks.serve.request_context import current

if TYPE_CHECKING:
    from tasks.serve.state import WorkerState

EXPLAIN = "explain"
_FLAGS = {"0": False, "false": False, "1": True, "true": True}


def wants_explanations(query: bytes) -> bool:
    """Return whether the client asks for explanations.

    Args:
        query: The query string of the address, without the question mark.

    Raises:
        RequestError: The value of `explain` is neither yes nor no.
    """
    if not query:
        return False
    value = QueryParams(query).get(EXPLAIN, "0")
    if value not in _FLAGS:
        raise http_errors.unreadable(f"{EXPLAIN}: got {value[:40]!r}, expected 1 or 0")
    return _FLAGS[value]


def check(served: LoadedModel, rows: InputRows) -> None:
    """Refuse rows that cannot be explained, before they are answered and logged.

    Raises:
        DataError: The version has several outputs or no background rows to compare with, or there are too many rows.
    """
    served.required_explainer.check(rows.num_rows)


async def explanations(state: WorkerState, response: PredictResponse) -> list[dict[str, Any]]:
    """Return one explanation for each answered row; the model runs once more, for all rows together.

    Raises:
        RequestError: The queue is full, or the deadline passed; the predictions are logged all the same.
    """
    explainer = response.served.required_explainer
    question = explainer.question(response.rows.feed)
    answers = await state.engine.answer(response.served, question, current().until(None, DEADLINE_S))
    return [explanation.as_json() for explanation in explainer.explanations(response.rows.num_rows, answers.outputs)]

"""Prediction for every protocol: pick the version, read the rows, predict, log, return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from models.errors import DataError, StoreError
from models.inference.input_schema import InputRows
from models.inference.loaded_model import LoadedModel, Prediction
from models.serving import http_errors
from models.serving.http_errors import RequestError
from models.serving.mlflow_scoring import LONGEST_ID
from models.serving.predict_request import PredictRequest
from tasks.serve.batcher import DEADLINE_S
from tasks.serve.bodies import off_loop
from tasks.serve.prediction_logger import new_ids
from tasks.serve.request_context import current

if TYPE_CHECKING:
    from tasks.serve.state import WorkerState


@dataclass(slots=True)
class PredictResponse:
    """A logged prediction with its input rows. `key`: the request's id; `ids`: the ids of the rows."""

    served: LoadedModel
    rows: InputRows
    answer: Prediction
    key: str
    ids: Sequence[str]


async def answer(state: WorkerState, question: PredictRequest) -> PredictResponse:
    """Predict with the version that the release picks, and log the prediction.

    Raises:
        RequestError: The request is refused.
    """
    name = model_name(state, question.name)
    key = question.key or (question.ids[0] if question.ids else "")
    if not key:
        (key,) = new_ids(1)
    served = picked(state, name, question.version, key)
    context = current()
    context.id, context.model, context.version = key, name, served.version
    rows, ids = await off_loop(question.is_large, _read, question, served, key)
    prediction = await _answered(state, name, served, rows, context.until(question.deadline, DEADLINE_S))
    is_recorded = await off_loop(question.is_large, _record, state, served, ids, rows, prediction)
    context.rows = rows.num_rows
    state.metrics.answered(served, prediction)
    if not is_recorded:
        context.unlogged = True
        state.metrics.unlogged(name, rows.num_rows)
    return PredictResponse(served, rows, prediction, key, ids)


def _record(
    state: WorkerState, served: LoadedModel, ids: Sequence[str], rows: InputRows, prediction: Prediction
) -> bool:
    """Check and log a prediction; return False if the log fails and the spec says to answer without it."""
    name = served.project
    try:
        served.check_finite(prediction)
        return state.prediction_loggers[name].enter(served, ids, rows, prediction, whole=state.loaded[name].has_shadow)
    except DataError as error:
        raise http_errors.unreadable(str(error)) from error
    except StoreError as error:
        raise http_errors.busy(
            f"{name}: the prediction log cannot be written: nothing is answered meanwhile"
        ) from error
    except orjson.JSONEncodeError as error:
        words = "a column that is no input is nested too deep to be written down: leave it out"
        raise http_errors.unreadable(words) from error


def model_name(state: WorkerState, name: str | None) -> str:
    """Return the name of a served model; without a name, that of the only served model.

    Raises:
        RequestError: The model is not served here, or no name was sent and several models are served.
    """
    loaded = state.loaded
    if name is None:
        if len(loaded) == 1:
            return next(iter(loaded))
        raise http_errors.unknown(
            f"several models are served here: ask /models/NAME/... for one of {', '.join(loaded)}"
        )
    if name not in loaded:
        raise http_errors.unknown(f"no model {name[:60]!r} is served here: there is {', '.join(loaded)}")
    return name


def checked_key(key: str) -> str:
    """Return the client's id of a request if it is short enough.

    Raises:
        RequestError: It is too long.
    """
    if len(key) > LONGEST_ID:
        raise http_errors.unreadable(f"got an id of {len(key)} characters, expected {LONGEST_ID} at most")
    return key


def picked(state: WorkerState, name: str, version: str | None, key: str) -> LoadedModel:
    """Return the loaded version that answers.

    Raises:
        RequestError: The version is not loaded.
    """
    loaded = state.loaded[name]
    served = loaded.pick(key, version)
    if served is not None:
        return served
    if not loaded.is_ready:
        raise http_errors.busy(f"{name}: no version is loaded yet")
    numbers = ", ".join(loaded.versions)
    raise http_errors.unknown(f"{name}: version {str(version)[:60]!r} is not loaded: there is {numbers}")


def _read(question: PredictRequest, served: LoadedModel, key: str) -> tuple[InputRows, Sequence[str]]:
    """Return the rows and their ids."""
    try:
        question.check_version(served)
        rows = question.rows(served.schema)
        question.check_rows(served, rows)
    except DataError as error:
        raise http_errors.unreadable(str(error)) from error
    return rows, _ids(question.ids, key, rows.num_rows)


async def _answered(state: WorkerState, name: str, served: LoadedModel, rows: InputRows, deadline: float) -> Prediction:
    """Predict, and count the outcome for the automatic rollback.

    Only the model's own work for a row counts against a version. A short deadline of the client, many rows, a full
    queue and other rows in the same batch do not count.
    """
    try:
        prediction = await state.engine.answer(served, rows.feed, deadline)
    except RequestError:
        raise
    except Exception:
        state.loaded[name].count(served.version, 0.0, failed=True)
        raise
    state.loaded[name].count(served.version, prediction.row_s)
    return prediction


def _ids(ids: Sequence[str] | None, key: str, count: int) -> Sequence[str]:
    """Return the client's row ids; else the request's id for one row, and `<id>-<number>` for several rows."""
    if ids is None:
        return [key] if count == 1 else [f"{key}-{row}" for row in range(count)]
    if len(ids) != count:
        raise http_errors.unreadable(f"got {len(ids)} ids for {count} rows: expected one for each, or none")
    return ids

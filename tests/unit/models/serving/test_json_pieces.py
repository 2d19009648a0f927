"""Tests of reading, writing and freeing large JSON in pieces: the result never depends on where it is cut."""

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import DataError
from models.inference.table import TableSchema
from models.inputs.numeric.record import NumericInput
from models.serving import json_pieces
from models.serving.json_pieces import free_in_pieces, parsed_in_pieces, written
from models.serving.mlflow_scoring import scoring_of_json
from models.serving.open_inference import inference_of
from tests.wide import examples

ONE_NUMBER = Preparation(
    kind="table", task="regression", target=TargetEncoding(name="y"), inputs=[NumericInput(name="a", fill=0.0)]
)
_TEXTS = st.text('[]{},:"\\ a\n', max_size=6)
_CELLS = st.one_of(st.none(), st.integers(-9, 9), _TEXTS, st.just("},{"), st.just("],["))
_VALUES = st.recursive(
    _CELLS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=3)),
    max_leaves=9,
)
_ROWS = st.one_of(
    st.lists(st.dictionaries(_TEXTS, _CELLS, max_size=3), max_size=8),
    st.lists(st.lists(_VALUES, max_size=3), max_size=8),
)
_DOCUMENTS = st.one_of(
    _VALUES,
    _ROWS,
    st.tuples(_TEXTS, _VALUES, _ROWS, _TEXTS, _VALUES).map(
        lambda of: {of[0]: of[1], "dataframe_records": of[2], of[3]: of[4]}
    ),
)


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DataError(str(error)) from None


def _outcome(parsed: Any) -> Any:
    try:
        return parsed()
    except DataError as error:
        return str(error)


@examples(300)
@given(_DOCUMENTS, st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", ":\n")]), st.data())
def test_the_result_does_not_depend_on_the_cuts(
    document: Any, separators: tuple[str, str], data: st.DataObject
) -> None:
    body = json.dumps(document, separators=separators).encode()
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(body)))
        body = body[:at] + data.draw(st.sampled_from([b"", b",", b'"', b"[", b"}", b"\\", b"[{"])) + body[at + 1 :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_pieces, "PIECE_BYTES", 3)
        assert _outcome(lambda: parsed_in_pieces(body, _parse)) == _outcome(lambda: _parse(body))


@pytest.mark.parametrize(
    "document",
    [
        [{"a": at, "b": None} for at in range(50)],
        {"ids": ["}, {"] * 50, "dataframe_records": [{"a": at, "b": "é"} for at in range(50)]},
        {"dataframe_split": {"columns": ["a"], "data": [[0]]}, "instances": [[[at], [2]] for at in range(50)]},
        {
            "instances": [[[[at, 1], [2, 3]], [[4, 5], [6, 7]]] for at in range(50)],
            "ids": [str(at) for at in range(50)],
        },
    ],
    ids=["records", "ids first", "not at the top", "pictures"],
)
def test_a_long_list_at_the_top_is_parsed_in_pieces(document: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", 100)
    lengths: list[int] = []

    def parse(body: bytes) -> Any:
        lengths.append(len(body))
        return _parse(body)

    body = json.dumps(document).encode()
    assert parsed_in_pieces(body, parse) == document
    assert (max(lengths) < len(body)) == ("dataframe_split" not in document)


def test_an_item_that_is_too_deep_for_the_whole_is_too_deep_for_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", 50)
    depth = next(num for num in range(1000, 1100) if isinstance(_outcome(lambda num=num: _parse(_deep(num))), str))
    body = _deep(depth)
    assert _outcome(lambda: parsed_in_pieces(body, _parse)) == _outcome(lambda: _parse(body))


def _deep(depth: int) -> bytes:
    return b'{"inputs":[{"x":%b},%b]}' % (b"[" * depth + b"]" * depth, b",".join([b'{"x":1}'] * 30))


def test_missing_values_may_stand_in_some_pieces_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", 20)
    body = b'[%b{"a": NaN}]' % (b'{"a": 100000000000000000000}, ' * 9)
    records: list[Any] = []
    scoring_of_json(body).rows(_Keeping(records))  # type: ignore[arg-type]
    assert [record["a"] for record in records] == [1e20] * 9 + [None]


def test_many_tensors_are_parsed_in_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", 100)
    pieces: list[int] = []

    def loads(body: bytes, loads: Any = orjson.loads) -> Any:
        pieces.append(len(body))
        return loads(body)

    monkeypatch.setattr(orjson, "loads", loads)
    inputs = [{"name": f"x{at}", "shape": [2], "datatype": "FP64", "data": [at, 0.5]} for at in range(20)]
    body = json.dumps({"inputs": inputs, "id": "one"}).encode()
    request = inference_of(body)
    assert list(request.tensors) == [f"x{at}" for at in range(20)]
    assert len(pieces) > 3
    assert max(pieces) < len(body) / 2


class _Keeping:
    def __init__(self, records: list[Any]) -> None:
        self.from_records = records.extend


@pytest.mark.parametrize("most", [1, 3, 9])
def test_what_is_written_in_pieces_is_what_is_written_at_once(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "ids": tuple("abcdefg"),
        "empty": [],
        'a "name"': {"in": [{"x": [1, 2]}] * 7, "none": None},
        "names": orjson.Fragment(b'["x"]'),
        "numbers": np.array([0.1, np.nan, 1e300, 4, 5, 6, 7]),
        "table": np.arange(14).reshape(7, 2),
    }
    expected = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    monkeypatch.setattr(json_pieces, "PIECE_ITEMS", most)
    assert written(document, 10) == expected
    assert written(document, 1) == expected


def test_a_list_is_freed_to_its_last_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_ITEMS", 3)
    items = list(range(10))
    free_in_pieces(items)
    assert items == []


@pytest.mark.parametrize(
    "rows", [{"dataframe_records": [{"a": 1}]}, {"dataframe_split": {"columns": ["a"], "data": [[1]]}}]
)
def test_the_rows_of_a_request_can_be_freed_once_they_are_read(rows: Any) -> None:
    scoring = scoring_of_json(orjson.dumps(rows))
    assert len(scoring.parsed) == 1
    read = TableSchema(ONE_NUMBER)
    before = scoring.rows(read)
    free_in_pieces(scoring.parsed)
    assert before.feed["a"].tolist() == [1.0]

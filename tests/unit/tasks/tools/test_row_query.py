import json

import numpy as np
import pyarrow as pa
import pytest

from models.validation.expectations import ExpectationCheck
from tasks.tools.expectations import run_checks

TABLE = pa.table({"x": [1.0, 2.0, 300.0, None], "low": [0.0, 5.0, 0.0, 0.0], "c": ["a", "b", "a", "z"]})


def check(expectation, **arguments):
    return ExpectationCheck(expectation=expectation, arguments=arguments)


def test_rows_that_a_query_returns_are_unexpected():
    query = check(
        "unexpected_rows_expectation", unexpected_rows_query="SELECT * FROM {batch} WHERE low < x AND c = 'a'"
    )
    none = check("unexpected_rows_expectation", unexpected_rows_query="SELECT c FROM {batch} WHERE x < 0")
    counts = check("unexpected_rows_expectation", unexpected_rows_query="SELECT c FROM {batch} GROUP BY c")
    outcome = run_checks(TABLE, [query, none, counts])
    first, second, third = outcome.report["results"]
    assert (first["unexpected_count"], first["success"], first["error"]) == (2, False, None)
    assert [row["c"] for row in first["examples"]] == ["a", "a"]
    assert (second["unexpected_count"], second["success"]) == (0, True)
    assert third["unexpected_count"] == 3
    assert outcome.quarantine(TABLE)["__position"].to_pylist() == [0, 2]
    json.dumps(outcome.report)


def test_a_query_sees_only_the_rows_that_are_not_spared():
    query = check("unexpected_rows_expectation", unexpected_rows_query="SELECT * FROM {batch} WHERE low = 0")
    query = query.model_copy(update={"origin": "spec"})
    outcome = run_checks(TABLE, [query], spared=np.array([True, False, False, False]))
    assert outcome.failing_rows[0].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nosuch FROM {batch}", "nosuch"),
        ("SELEC 1 FROM {batch}", "syntax error"),
        ("DROP TABLE {batch}", "expected a single SELECT"),
        ("SELECT 1 FROM {batch}; SELECT 2", "expected a single SELECT"),
        ("SELECT * FROM {batch}, {table}", "the table is {batch}"),
        ("SELECT * FROM {batch.name}", "the table is {batch}"),
        ("SELECT * FROM read_csv('/etc/passwd') JOIN {batch} ON true", "disabled by configuration"),
    ],
)
def test_a_query_that_cannot_be_run_is_an_error_and_no_bad_data(query, message):
    (result,) = run_checks(TABLE, [check("unexpected_rows_expectation", unexpected_rows_query=query)]).report["results"]
    assert message in result["error"]

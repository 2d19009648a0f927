"""A report's failures in words."""

from models.report.data import drifting, failing


def result(**told: object) -> dict[str, object]:
    return {
        "expectation": "column_values_to_be_between",
        "column": "delay",
        "success": False,
        "severity": "reject",
        **told,
    }


def test_only_failures_are_told_those_that_reject_first() -> None:
    results = [
        result(severity="warn", column="sex", observed=0.8),
        result(success=True),
        result(unexpected_count=12_000),
        result(error="no such column"),
    ]
    assert failing({"results": results}) == [
        "delay: column values to be between (12\u202f000 rows break it)",
        "delay: column values to be between (could not be checked: no such column)",
        "sex: column values to be between (observed 0.8)",
    ]


def test_of_the_whole_table() -> None:
    told = failing({"results": [result(column=None, expectation="table_row_count_to_be_between", observed=3)]})
    assert told == ["table row count to be between (observed 3)"]


def test_drift_is_told_apart() -> None:
    report = {"results": [result(origin="champion", expectation="column_kl_divergence_to_be_less_than", observed=1.7)]}
    assert failing(report) == []
    assert drifting(report) == ["delay: column kl divergence to be less than (observed 1.7)"]


def test_no_report_tells_nothing() -> None:
    assert failing({}) == drifting({}) == []

"""A report's failures in words."""

from models.report.data import drifting, failing


def result(**told: object) -> dict[str, object]:
    return {
        "expectation": "column_values_to_be_between",
        "column": "delay",
        "arguments": {"column": "delay", "min_value": 0, "threshold": 0.1},
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
        "delay: every value is at least 0 (12\u202f000 rows break it)",
        "delay: every value is at least 0 (could not be checked: no such column)",
        "sex: every value is at least 0 (seen: 0.8)",
    ]


def test_of_the_whole_table() -> None:
    told = failing({"results": [result(column=None, expectation="table_row_count_to_be_between", observed=3)]})
    assert told == ["there are at least 0 rows (seen: 3)"]


def test_drift_is_told_apart() -> None:
    report = {"results": [result(origin="champion", expectation="column_kl_divergence_to_be_less_than", observed=1.7)]}
    assert failing(report) == []
    assert drifting(report) == [
        "delay: values are spread as in the champion's data (divergence at most 0.1) (seen: 1.7)"
    ]


def test_no_report_tells_nothing() -> None:
    assert failing({}) == drifting({}) == []

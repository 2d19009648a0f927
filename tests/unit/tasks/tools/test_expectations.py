import json

import numpy as np
import pyarrow as pa
import pytest

from models.errors import UsageError
from models.validation.expectation_arguments import EXPECTATIONS, ROW_WISE
from models.validation.expectations import ExpectationCheck
from tasks.tools.expectations import run_checks, snake_name

TABLE = pa.table(
    {
        "x": [1.0, 2.0, 300.0, None],
        "low": [0.0, 5.0, 0.0, 0.0],
        "c": ["a", "b", "a", "z"],
        "t": pa.array([1, 2, 3, 4], pa.timestamp("s")),
    }
)


def check(expectation, severity="reject", **arguments):
    return ExpectationCheck(expectation=expectation, arguments=arguments, severity=severity)


BETWEEN = check("column_values_to_be_between", column="x", max_value=100)
IN_SET = check("column_values_to_be_in_set", "warn", column="c", value_set=["a", "b"])
ROWS = check("table_row_count_to_be_between", min_value=1)


def test_good_data_is_valid_and_the_report_is_plain_json():
    outcome = run_checks(TABLE, [ROWS, check("column_values_to_not_be_null", column="c")], "penguins", "abc")
    report = json.loads(json.dumps(outcome.report))
    assert (report["project"], report["dataset"]) == ("penguins", "abc")
    assert (report["rows"], report["columns"], report["success"], report["status"]) == (4, 4, True, "valid")
    assert [result["expectation"] for result in report["results"]] == [
        "table_row_count_to_be_between",
        "column_values_to_not_be_null",
    ]
    assert report["results"][0]["observed"] == 4
    assert not outcome.failing_rows


def test_a_failed_check_names_its_rows_and_examples():
    outcome = run_checks(TABLE, [ROWS, BETWEEN, IN_SET])
    assert (outcome.report["status"], outcome.report["success"]) == ("rejected", False)
    failed = outcome.report["results"][1]
    assert (failed["column"], failed["unexpected_count"], failed["examples"]) == ("x", 1, [300.0])
    assert {position: rows.tolist() for position, rows in outcome.failing_rows.items()} == {1: [2], 2: [3]}


def test_a_warning_alone_lets_the_loop_go_on():
    report = run_checks(TABLE, [ROWS, IN_SET]).report
    assert (report["status"], report["success"]) == ("warned", True)


def test_quarantine_holds_the_rows_of_rejecting_checks_with_the_reason():
    unique = check("compound_columns_to_be_unique", column_list=["low", "c"])
    bad = run_checks(TABLE, [BETWEEN, IN_SET, unique])
    rows = bad.quarantine(TABLE).select(["x", "__position", "__failed"]).to_pylist()
    assert [row["__position"] for row in rows] == [0, 2]
    assert rows[1]["__failed"] == "column_values_to_be_between(x); compound_columns_to_be_unique(low, c)"


def test_checks_across_columns_and_of_the_whole_table_work():
    pair = check("column_pair_values_a_to_be_greater_than_b", column_A="x", column_B="low")
    columns = check("table_columns_to_match_set", column_set=["x", "low", "c", "t"])
    distinct = check("column_distinct_values_to_equal_set", column="c", value_set=["a", "b", "z"])
    results = run_checks(TABLE, [pair, columns, distinct]).report["results"]
    assert [result["success"] for result in results] == [False, True, True]
    assert results[0]["column"] == "x, low"


def test_a_column_that_is_not_there_is_bad_data_with_the_nearest_name():
    outcome = run_checks(
        TABLE, [check("column_values_to_be_unique", column="cc"), check("column_to_exist", column="k")]
    )
    assert outcome.report["status"] == "rejected"
    assert "did you mean 'c'" in outcome.report["results"][0]["observed"]
    assert outcome.report["results"][1]["error"] is None


def test_what_the_engine_cannot_evaluate_is_an_error_and_not_bad_data():
    outcome = run_checks(TABLE, [ROWS, check("column_values_to_be_between", column="c", min_value=1)])
    assert (outcome.report["status"], outcome.report["success"]) == ("error", False)
    assert "could not evaluate" in outcome.report["results"][1]["error"]
    assert outcome.report["results"][0]["success"]


def test_an_expectation_that_breaks_the_engine_leaves_the_others_their_answers():
    quantiles = {"quantiles": [0.5], "value_ranges": [[0, 100]]}
    outcome = run_checks(
        TABLE, [ROWS, BETWEEN, check("column_quantile_values_to_be_between", column="x", quantile_ranges=quantiles)]
    )
    assert [result["success"] for result in outcome.report["results"][:2]] == [True, False]
    json.dumps(outcome.report)


def test_an_unknown_expectation_gets_the_nearest_name():
    with pytest.raises(
        UsageError, match="no expectation 'column_values_to_be_betwen': did you mean 'column_values_to_be_between'"
    ):
        run_checks(TABLE, [check("column_values_to_be_betwen", column="x")])


def test_wrong_arguments_are_told():
    with pytest.raises(UsageError, match=r"column_values_to_be_between with .*minimum.*extra fields not permitted"):
        run_checks(TABLE, [check("column_values_to_be_between", column="x", minimum=3)])


def test_a_distribution_is_compared():
    random = np.random.default_rng(0)
    table = pa.table({"v": random.normal(0, 1, 2000), "w": random.normal(3, 1, 2000)})
    partition = {"bins": [-1.0, 0.0, 1.0], "weights": [0.34, 0.34], "tail_weights": [0.16, 0.16]}
    same, moved = (
        check("column_kl_divergence_to_be_less_than", column=name, partition_object=partition, threshold=0.1)
        for name in ("v", "w")
    )
    assert [result["success"] for result in run_checks(table, [same, moved]).report["results"]] == [True, False]


def test_a_condition_may_name_any_column():
    only_b = {"type": "comparison", "column": {"name": "c"}, "operator": "==", "parameter": "b"}
    conditioned = check("column_values_to_be_between", column="x", max_value=100, row_condition=only_b)
    assert run_checks(TABLE, [conditioned]).report["status"] == "valid"


@pytest.mark.parametrize("column", ["t", "zoned", "day"])
@pytest.mark.parametrize("since", ["1970-01-02", "1970-01-02T00:00:00", "1970-01-02T01:00:00+01:00"])
def test_a_date_is_compared_with_times_and_dates_of_any_form(column, since):
    times = pa.array([0, 86400, 2 * 86400], pa.int64()).cast(pa.timestamp("s"))
    table = pa.table({"t": times, "zoned": times.cast(pa.timestamp("s", "UTC"))})
    table = table.append_column("day", table.column("t").cast(pa.date32()))
    checks = [
        check("column_values_to_be_between", column=column, min_value=since),
        check("column_max_to_be_between", column=column, min_value=since),
        check("column_values_to_not_be_in_set", column=column, value_set=[since, "1980-01-01"]),
    ]
    outcome = run_checks(table, checks)
    json.dumps(outcome.report)
    assert [result["error"] for result in outcome.report["results"]] == [None] * 3
    assert {position: rows.tolist() for position, rows in outcome.failing_rows.items()} == {0: [0], 2: [1]}


def test_the_names_and_arguments_that_a_spec_may_use_are_those_of_the_library():
    import great_expectations.expectations as library
    from great_expectations.expectations.expectation import Expectation

    names = [name for name in dir(library) if name.startswith(("Expect", "Unexpected")) and name != "Expectation"]
    classes = {snake_name(name): getattr(library, name) for name in names}
    shared = {*Expectation.__fields__, "batch_id", "library_metadata"}
    for name, (needed, others) in EXPECTATIONS.items():
        fields = {key: field for key, field in classes[name].__fields__.items() if key not in shared}
        assert {*needed} == {key for key, field in fields.items() if field.required}, name
        assert {*needed, *others} == {*fields}, name
    # These need a database, a second table, or are of no engine at all.
    strange = ("like_pattern", "query", "other_table", "multicolumn_values_to_be_unique")
    assert all(any(word in name for word in strange) for name in classes.keys() - EXPECTATIONS.keys())


def test_every_expectation_that_a_spec_may_name_can_be_evaluated():
    table = pa.table(
        {"a": [1.0, 2.0, 3.0], "b": [2.0, 3.0, 4.0], "s": ["x", "y", "z"], "j": ["{}"] * 3, "d": ["2020-01-01"] * 3}
    )
    values = {
        "column_A": "a",
        "column_B": "b",
        "column_list": ["a", "b"],
        "value_set": [1, 2],
        "value_pairs_set": [[1, 2]],
        "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[1, 3]]},
        "value": 3,
        "threshold": 3,
        "double_sided": True,
        "type_": "float64",
        "type_list": ["float64"],
        "json_schema": {"type": "object"},
        "regex": "x",
        "regex_list": ["x"],
        "strftime_format": "%Y-%m-%d",
        "sum_total": 3,
        "min_value": 1,
        "partition_object": {"bins": [0, 2, 4], "weights": [0.5, 0.5]},
        "unexpected_rows_query": "SELECT * FROM {batch} WHERE a > 100",
    }
    columns = {"json": "j", "regex": "s", "lengths": "s", "strftime": "d", "dateutil": "d"}
    checks = []
    for name, (needed, others) in EXPECTATIONS.items():
        given = {key: values[key] for key in (*needed, *others) if key in values}
        if "column" in needed:
            given["column"] = next((column for word, column in columns.items() if word in name), "a")
        checks.append(
            check(name, **{key: value for key, value in given.items() if "kl_" not in name or key != "min_value"})
        )
    assert [result["error"] for result in run_checks(table, checks).report["results"]] == [None] * len(EXPECTATIONS)


OWN = """\
import great_expectations.expectations as gxe
from great_expectations.execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import ColumnMapExpectation
from great_expectations.expectations.metrics import ColumnMapMetricProvider, column_condition_partial


class Even(ColumnMapMetricProvider):
    condition_metric_name = "column_values.even"

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column, **others):
        return column % 2 == 0


class ExpectColumnValuesToBeEven(ColumnMapExpectation):
    map_metric = "column_values.even"
    success_keys = ("mostly",)


class ExpectFewRows(gxe.ExpectTableRowCountToBeBetween):
    max_value: int = 2


NUMBER = 3
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "checks.py").write_text(OWN)
    return tmp_path


def test_a_teams_own_expectations_are_named_by_reference(own):
    checks = [check("./checks.py:ExpectColumnValuesToBeEven", column="x"), check("./checks.py:ExpectFewRows", "warn")]
    outcome = run_checks(TABLE, checks, base=own)
    even, few = outcome.report["results"]
    assert (even["success"], even["unexpected_count"], even["examples"], even["column"]) == (False, 1, [1.0], "x")
    assert outcome.quarantine(TABLE)["__position"].to_pylist() == [0]
    assert (few["success"], few["observed"], few["error"]) == (False, 4, None)


def test_a_reference_that_is_no_expectation_is_refused(own):
    with pytest.raises(UsageError, match=r"checks\.py:NUMBER: got 3, expected a subclass of an expectation"):
        run_checks(TABLE, [check("./checks.py:NUMBER")], base=own)


def test_a_check_of_single_rows_is_one_whose_condition_names_no_other_row():
    """A new map expectation of the library has to be put in either list."""
    assert sorted(name for name in EXPECTATIONS if name not in ROW_WISE and "column_values_" in name) == [
        "column_values_to_be_decreasing",
        "column_values_to_be_in_type_list",
        "column_values_to_be_increasing",
        "column_values_to_be_of_type",
        "column_values_to_be_unique",
        "column_values_to_not_be_outliers",
    ]
    assert len(ROW_WISE) == 21


def test_the_position_of_a_column_is_that_in_the_table():
    at_its_place, elsewhere = (check("column_to_exist", column="c", column_index=index) for index in (2, 1))
    results = run_checks(TABLE, [at_its_place, elsewhere]).report["results"]
    assert [result["success"] for result in results] == [True, False]

import json

import numpy as np
import pyarrow as pa
import pytest

from models.data.preparation import ROWS_FILE
from models.sources.read import read_table
from models.validation.expectations import prepared_checks, raw_checks, reference

RANGE = {"expect": "expect_column_values_to_be_between", "arguments": {"column": "count", "max_value": 9}}


def test_every_project_is_checked_for_rows_columns_and_a_target(make_spec):
    checks = raw_checks(make_spec(split={"by": "time", "column": "when"}).data)
    assert [(check.expectation, check.arguments.get("column")) for check in checks] == [
        ("table_row_count_to_be_between", None),
        ("column_to_exist", "y"),
        ("column_to_exist", "when"),
        ("column_values_to_not_be_null", "y"),
    ]
    assert {check.severity for check in checks} == {"reject"}


def test_the_specs_own_checks_go_where_they_belong(make_spec, run_prepare, rows):
    spec = make_spec(expectations=[RANGE, {**RANGE, "on": "prepared", "severity": "warn"}])
    _, made = run_prepare(rows, spec)
    (raw,) = [check for check in raw_checks(spec.data) if check.origin == "spec"]
    (prepared,) = [check for check in prepared_checks(spec.data, made) if check.origin == "spec"]
    assert raw.expectation == prepared.expectation == "column_values_to_be_between"
    assert (raw.severity, prepared.severity) == ("reject", "warn")


def test_prepared_rows_are_checked_for_splits_and_classes(make_spec, run_prepare, rows):
    spec = make_spec()
    _, made = run_prepare(rows, spec)
    sets = {
        check.arguments.get("column"): check.arguments.get("value_set") for check in prepared_checks(spec.data, made)
    }
    assert sets["y"] == ["no", "yes"]
    assert sets["__split"] == [-1, 0, 1, 2]


def test_the_champions_data_is_a_warning_per_column(make_spec, run_prepare, rows):
    spec = make_spec()
    folder, made = run_prepare(rows, spec)
    known = json.loads(json.dumps(reference(read_table(folder / ROWS_FILE), made.column_inputs)))
    checks = [check for check in prepared_checks(spec.data, made, known) if check.origin == "champion"]
    assert {check.severity for check in checks} == {"warn"}
    compared = {check.arguments["column"] for check in checks if "kl_divergence" in check.expectation}
    assert compared == {"number", "count", "when", "city", "flag"}
    seasonal = prepared_checks(spec.data, made, known, seasonal=["number"])
    assert len(seasonal) == len(checks) - 1 + len(prepared_checks(spec.data, made))


def test_a_column_that_is_new_since_the_champion_or_changed_its_kind_is_not_compared(make_spec, run_prepare, rows):
    folder, made = run_prepare(rows, make_spec(features={"columns": ["count"]}))
    known = reference(read_table(folder / ROWS_FILE), made.column_inputs)
    spec = make_spec(features={"kinds": {"count": "categorical"}})
    _, made = run_prepare(rows, spec)
    checks = [check for check in prepared_checks(spec.data, made, known) if check.origin == "champion"]
    assert [check.expectation for check in checks] == [
        "table_row_count_to_be_between",
        "column_values_to_not_be_null",
    ]


def test_the_reference_is_a_distribution_that_sums_to_one(make_spec, run_prepare, rows):
    folder, made = run_prepare(rows.append_column("same", pa.array([1.0] * 200)), make_spec())
    known = reference(read_table(folder / ROWS_FILE), made.column_inputs)
    assert known["rows"] == 200
    number = known["columns"]["number"]
    assert number["missing"] == pytest.approx(12 / 200)
    partition = number["partition"]
    assert sum(partition["weights"]) + sum(partition["tail_weights"]) == pytest.approx(1)
    assert np.all(np.diff(partition["bins"]) > 0)
    assert sum(known["columns"]["city"]["partition"]["weights"]) == pytest.approx(1)
    assert known["columns"]["same"]["partition"] is None

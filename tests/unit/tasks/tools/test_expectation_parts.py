import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import UsageError
from models.validation.expectations import ExpectationCheck
from tasks.tools import expectation_parts
from tasks.tools.expectations import run_checks
from tests.wide import wide


def check(expectation, severity="reject", **arguments):
    return ExpectationCheck(expectation=expectation, arguments=arguments, severity=severity)


LARGE = pa.table(
    {
        "x": [None if i % 7 == 0 else float(i) for i in range(60)],
        "whole": pa.array([None if i == 59 else i for i in range(60)], pa.int64()),
        "other": pa.array([i % 5 + 20 for i in range(60)], pa.int64()),
        "text": [f"v{i % 4}" for i in range(60)],
        "t": pa.array([i * 86400 for i in range(60)], pa.timestamp("s")),
    }
)
SIZES = expectation_parts.sizes_of(LARGE)
IN_PARTS = [
    check("table_row_count_to_be_between", min_value=100),
    check("table_row_count_to_be_between", min_value=20, max_value=60, strict_max=True),
    check("table_row_count_to_equal", value=60),
    check("column_to_exist", column="text"),
    check("column_values_to_be_in_type_list", column="text", type_list=["str"]),
    check("column_values_to_be_of_type", column="whole", type_="int64"),
    check("table_columns_to_match_set", column_set=["x", "whole"], exact_match=False),
    check("column_values_to_not_be_null", column="x", mostly=0.9),
    check("column_values_to_be_null", column="x", mostly=0.1),
    check("column_values_to_be_between", column="x", max_value=40, mostly=0.75),
    check("column_values_to_be_between", "warn", column="whole", max_value=40),
    check("column_values_to_be_between", column="t", min_value="1970-01-05", max_value="1970-02-20"),
    check("column_values_to_be_in_set", column="text", value_set=["v0", "v1", "v2"]),
    check("column_values_to_not_match_regex", column="text", regex="v[12]"),
    check("column_values_to_be_unique", column="other"),
    check("column_values_to_be_of_type", column="x", type_="float64"),
    check("column_value_z_scores_to_be_less_than", column="x", threshold=1, double_sided=True),
    check("column_values_to_be_increasing", column="whole"),
    check("compound_columns_to_be_unique", column_list=["other", "text"]),
    check("column_pair_values_a_to_be_greater_than_b", column_A="whole", column_B="other"),
    check("multicolumn_sum_to_equal", column_list=["whole", "other"], sum_total=43),
    check("column_mean_to_be_between", column="x", max_value=10),
    check("column_median_to_be_between", column="whole", max_value=10),
    check("column_values_to_be_between", column="text", min_value=3),
]


@pytest.mark.parametrize("spared", [wide(None), np.arange(60) % 9 == 0])
def test_a_table_in_parts_has_the_answers_and_the_failing_rows_of_the_whole(monkeypatch, tmp_path, spared):
    checks = [each.model_copy(update={"origin": "spec"}) for each in IN_PARTS]
    whole = run_checks(LARGE, checks, spared=spared)
    for name, size in (("FRAME_BYTES", 2000), ("_SLICE_BYTES", 2000), ("_VALUES_BYTES", 62)):
        monkeypatch.setattr(expectation_parts, name, size)
    stored = None if spared is None else tmp_path / "rows.parquet"
    if stored:  # it may have more rows
        pq.write_table(pa.concat_tables([LARGE, LARGE.slice(0, 5)]), stored, row_group_size=17)
    parts = run_checks(LARGE, checks, spared=spared, stored=stored)
    assert json.dumps(parts.report["results"]) == json.dumps(whole.report["results"])
    assert {place: rows.tolist() for place, rows in parts.failing_rows.items()} == {
        place: rows.tolist() for place, rows in whole.failing_rows.items()
    }
    assert parts.quarantine(LARGE).equals(whole.quarantine(LARGE))
    assert sum(result["success"] for result in whole.report["results"]) > 3
    assert len(whole.failing_rows) > 8


def test_a_comparison_with_the_champion_looks_at_every_nth_row_of_a_large_table(monkeypatch):
    partition = {"bins": [0.0, 30.0, 60.0], "weights": [0.5, 0.5], "tail_weights": [0, 0]}
    arguments = {"column": "other", "partition_object": {**partition, "bins": [20, 22, 25]}, "threshold": 5}
    compared = check("column_kl_divergence_to_be_less_than", "warn", **arguments)
    seen = []
    monkeypatch.setattr(expectation_parts, "FRAME_BYTES", 100)
    for origin in ("spec", "champion"):
        (part,) = expectation_parts.parts_of(LARGE, [compared.model_copy(update={"origin": origin})], [0], None, SIZES)
        seen.append(part.rows.tolist())
    assert seen == [list(range(60)), list(range(0, 60, 5))]


def test_checks_of_names_and_types_are_a_part_of_a_single_row_in_a_table_that_is_no_small_one(monkeypatch):
    checks = [check("column_to_exist", column=name) for name in LARGE.column_names]
    checks += [check("column_values_to_be_of_type", column="x", type_="float64"), check("column_mean", column="x")]
    positions = list(range(len(checks)))
    (whole,) = expectation_parts.parts_of(LARGE, checks, positions, None, SIZES)
    monkeypatch.setattr(expectation_parts, "_SLICE_BYTES", 1000)
    names, mean = expectation_parts.parts_of(LARGE, checks, positions, None, SIZES)
    assert (sorted(whole.positions), whole.table.num_rows) == (positions, 60)
    assert (names.positions, names.table.num_rows) == (positions[:-1], 1)
    assert (mean.positions, mean.table.column_names) == (positions[-1:], ["x"])


def test_a_check_of_a_whole_column_that_does_not_fit_is_refused_and_the_query_of_its_cure_is_not(monkeypatch):
    monkeypatch.setattr(expectation_parts, "FRAME_BYTES", 100)
    monkeypatch.setattr(expectation_parts, "_VALUES_BYTES", 100)
    monkeypatch.setattr(expectation_parts, "usable_memory", lambda: 1000.0)
    mean = check("column_mean_to_be_between", column="other", max_value=30)
    with pytest.raises(UsageError, match=r"mean_to_be_between of 'other': reads 60 rows at once.*by `unexpected_"):
        run_checks(LARGE, [mean])
    query = "SELECT * FROM (SELECT avg(other) AS mean FROM {batch}) WHERE mean > 30"
    in_parts = [
        check("unexpected_rows_expectation", unexpected_rows_query=query),
        check("column_values_to_be_unique", column="whole"),
        check("column_to_exist", column="text"),
        check("column_values_to_be_of_type", column="x", type_="float64"),
        check("table_row_count_to_be_between", min_value=60),
    ]
    assert run_checks(LARGE, in_parts).report["status"] == "valid"

import json
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from models.data.prepare import prepare_table
from models.errors import DataError, UsageError
from models.inputs.datetime.record import DatetimeInput
from models.project_spec.blocks import Spec
from models.scaffold.expectations import MOST_LINES, yaml_text
from models.scaffold.table import guess_spec, guess_target
from models.sources.read import read_source
from models.training.spec_check import read_checked
from models.validation.expectations import raw_checks
from tasks.tools.sources import ingest
from tests.column_types import typed_columns
from tests.wide import examples

ROWS = 120
UNFIT_TARGETS = {
    **dict.fromkeys(("null", "all_nan"), "has no value at all in 60 rows"),
    **dict.fromkeys(("binary", "date", "timestamp", "time", "duration", "list", "struct"), "expected numbers, text or"),
    "constant": "every row has the same 'constant'",
}


@pytest.fixture
def path(tmp_path):
    random = np.random.default_rng(0)
    table = pa.table(
        {
            "customer_id": np.arange(ROWS),
            "e-mail: address": [f"p{i}@x" for i in range(ROWS)],
            "always": ["same"] * ROWS,
            "age": pa.array([None if i % 10 == 0 else int(20 + i % 50) for i in range(ROWS)]),
            "debt": random.normal(0, 1000, ROWS),
            "plan": random.choice(["no", "gold", "1"], ROWS),
            "churn": random.choice(["kept", "left"], ROWS),
            "town": random.choice(["Rome", "Oslo"], ROWS),
        }
    )
    pq.write_table(table, tmp_path / "people.parquet")
    return tmp_path / "people.parquet"


def read(text):
    return Spec.model_validate(YAML(typ="safe").load(text))


def test_the_guessed_spec_is_valid_and_prepares_the_data(path):
    spec = read(guess_spec(path, "people"))
    assert (spec.name, spec.data.target, spec.data.task) == ("people", "churn", "binary")
    assert spec.data.split.by == "stratified"
    assert spec.data.features.drop == ["customer_id", "e-mail: address", "always"]
    assert spec.judge.slices == ["plan", "town"]
    _, made = prepare_table(pq.read_table(path), spec, path.parent)
    assert spec.goal.positive == "kept", "the rarer one"
    assert made.target.classes == ["left", "kept"]


def test_the_expectations_hold_for_the_data_they_were_guessed_from(path):
    spec = read(guess_spec(path, "people", source="people.parquet"))
    table = pq.read_table(path)
    known = {(one.expect, one.arguments.get("column")): one.arguments for one in spec.data.expectations}
    assert spec.data.source == "people.parquet"
    assert known["column_values_to_not_be_null", "age"]["mostly"] == 0.85
    assert known["column_values_to_be_in_set", "plan"]["value_set"] == ["1", "gold", "no"]
    assert known["column_values_to_be_between", "age"]["min_value"] == 0
    debt = known["column_values_to_be_between", "debt"]
    values = table.column("debt").to_numpy()
    assert debt["min_value"] < values.min()
    assert debt["max_value"] > values.max()


@pytest.mark.parametrize("name", ["passenger_id", "rownames", "Unnamed: 0"])
def test_a_number_of_the_row_is_no_input(tmp_path, name):
    table = pa.table({name: np.arange(60), "x": np.arange(60.0) % 7, "y": ["a", "b"] * 30})
    pq.write_table(table, tmp_path / "d.parquet")
    assert read(guess_spec(tmp_path / "d.parquet", "d")).data.features.drop == [name]


def test_a_year_gets_a_few_years_of_slack(tmp_path):
    pq.write_table(pa.table({"year": [2007, 2008, 2009] * 20, "y": ["a", "b"] * 30}), tmp_path / "d.parquet")
    spec = read(guess_spec(tmp_path / "d.parquet", "d"))
    (years,) = [one.arguments for one in spec.data.expectations if one.expect == "column_values_to_be_between"]
    assert (years["min_value"], years["max_value"]) == (2006, 2010)


def test_a_target_of_numbers_is_a_regression(path):
    spec = read(guess_spec(path, "people", target="debt"))
    assert (spec.data.task, spec.data.split.by) == ("regression", "random")


def test_a_wrong_target_gets_the_nearest_name(path):
    with pytest.raises(UsageError, match=r"--target: no column 'chrun'.*did you mean 'churn'"):
        guess_spec(path, "people", target="chrun")


def test_a_table_with_forms_is_split_by_time(tmp_path):
    days = np.datetime64("2024-01-01") + np.arange(60)
    pq.write_table(pa.table({"day": days, "x": np.arange(60.0), "y": ["a", "b"] * 30}), tmp_path / "d.parquet")
    spec = read(guess_spec(tmp_path / "d.parquet", "d"))
    assert (spec.data.split.by, spec.data.split.column, spec.data.target) == ("time", "day", "y")


def test_grades_of_queries_are_a_ranking(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"qid": np.repeat(np.arange(40), 5), "bm25": rng.normal(size=200), "relevance": rng.integers(0, 4, 200)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    spec = Spec.model_validate(YAML(typ="safe").load(guess_spec(tmp_path / "rows.parquet", "r")))
    assert (spec.data.task, spec.data.split.by, spec.data.split.column) == ("ranking", "group", "qid")
    assert prepare_table(pa.table(columns), spec, tmp_path)[1].columns == ["bm25"]
    for other in (
        {"qid": np.arange(200)},
        {"relevance": rng.integers(0, 40, 200)},
        {"relevance": rng.normal(size=200)},
    ):
        pq.write_table(pa.table(columns | other), tmp_path / "rows.parquet")
        assert "ranking" not in guess_spec(tmp_path / "rows.parquet", "r")


def test_text_that_looks_like_something_else_is_told(tmp_path):
    path = tmp_path / "a.csv"
    rows = "".join(f'{day % 9 + 1:02d}.01.2025 10:00,"{day},500.00",word {day},x\n' for day in range(1, 20))
    path.write_text(f"when,price,name,3.5\n{rows}")
    told = [line for line in guess_spec(path, "p", "name").splitlines() if line.startswith("# Column")]
    assert [line.split(",")[0] for line in told] == [
        '# Column "3.5" is named by the first line: is it a header? If there is none',
        "# Column when is text",
        "# Column price is text",
    ]
    assert 'like dates, such as "02.01.2025 10:00":' in told[1]
    assert 'like numbers, such as "1,500.00":' in told[2]


def test_a_few_texts_that_are_no_dates_among_many_are_told(tmp_path):
    days = [f"{day}.03.2024" for day in range(1, 29)]
    table = pa.table({"when": [*days, "unknown"], "x": [float(n) for n in range(29)], "y": ["a", "b"] * 14 + ["a"]})
    pq.write_table(table, tmp_path / "t.parquet")
    text = guess_spec(tmp_path / "t.parquet", "t", "y")
    assert "they look like dates, such as 1.03.2024 (all but 1, such as unknown):" in text.replace('"', "")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({}, "there is no other column"),
        ({"a": [[1]] * 40, "b": ["same"] * 40}, "a: of type list<.*; b: always the same"),
    ],
)
def test_a_table_without_inputs_is_refused(tmp_path, columns, reason):
    pq.write_table(pa.table({**columns, "y": ["u", "v"] * 20}), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match=rf"t\.parquet: no column is left to predict 'y' from \({reason}\): add col"):
        guess_spec(tmp_path / "t.parquet", "t", "y")


def test_a_time_that_is_the_only_input_does_not_split(tmp_path):
    times = [datetime(2024, 1, 1) + timedelta(hours=7 * n) for n in range(60)]
    table = pa.table({"when": times, "y": ["u", "v", "v"] * 20})
    pq.write_table(table, tmp_path / "t.parquet")
    spec = read(guess_spec(tmp_path / "t.parquet", "t", "y"))
    assert spec.data.split.by == "stratified"
    assert [part.name for part in prepare_table(table, spec, tmp_path)[1].of(DatetimeInput)] == ["when"]


def test_the_hour_of_the_time_that_splits_is_an_input_and_the_date_is_none(tmp_path):
    times = [datetime(2024, 1, 1) + timedelta(hours=7 * n) for n in range(60)]
    table = pa.table({"when": times, "x": np.arange(60.0), "y": ["u", "v", "v"] * 20})
    pq.write_table(table, tmp_path / "t.parquet")
    spec = read(guess_spec(tmp_path / "t.parquet", "t", "y"))
    assert (spec.data.split.by, spec.data.split.column) == ("time", "when")
    (part,) = prepare_table(table, spec, tmp_path)[1].of(DatetimeInput)
    assert (part.name, part.cycles, part.trend) == ("when", ["day", "week"], False)


def test_without_a_usual_name_the_last_column_is_the_target():
    assert guess_target(pa.table({"a": [1], "b": [2]})) == "b"
    assert guess_target(pa.table({"Label": [1], "b": [2]})) == "Label"


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12))
def test_any_text_is_read_back_as_it_was(text):
    assert YAML(typ="safe").load(f"x: {yaml_text(text)}") == {"x": text}


@pytest.mark.parametrize("target", [name for name in typed_columns().column_names if name not in UNFIT_TARGETS])
def test_every_spec_that_is_proposed_passes_its_own_gate(tmp_path, target):
    """Whatever types the columns have, and whichever of them is the target."""
    table = typed_columns()
    pq.write_table(table, tmp_path / "typed.parquet")
    raw = read_source(tmp_path / "typed.parquet")
    spec = read(guess_spec(tmp_path / "typed.parquet", "typed", target))
    rejecting = [check for check in raw_checks(spec.data) if check.severity == "reject"]
    for check in rejecting:
        if check.expectation == "column_values_to_not_be_null":
            column = raw.column(check.arguments["column"])
            assert 1 - column.null_count / len(column) >= check.arguments["mostly"]
        elif check.expectation == "table_row_count_to_be_between":
            assert raw.num_rows >= check.arguments["min_value"]
        else:
            assert check.expectation == "column_to_exist"
            assert check.arguments["column"] in raw.column_names
    prepare_table(raw, spec, tmp_path)


@pytest.mark.parametrize("target", UNFIT_TARGETS)
def test_a_target_that_cannot_be_predicted_is_refused(tmp_path, target):
    pq.write_table(typed_columns(), tmp_path / "typed.parquet")
    with pytest.raises((UsageError, DataError), match=UNFIT_TARGETS[target]):
        guess_spec(tmp_path / "typed.parquet", "typed", target)


def test_rows_without_a_target_are_proposed_to_be_kept(tmp_path):
    table = pa.table({"x": range(100), "y": [None if n % 5 == 0 else "ab"[n % 2] for n in range(100)]})
    pq.write_table(table, tmp_path / "some.parquet")
    spec = read(guess_spec(tmp_path / "some.parquet", "some", "y"))
    assert spec.data.unlabelled
    assert not [check for check in raw_checks(spec.data) if check.expectation == "column_values_to_not_be_null"
                and check.origin == "default"]  # fmt: skip


def spec_of(tmp_path, table, **options):
    pq.write_table(table, tmp_path / "t.parquet")
    spec = read(guess_spec(tmp_path / "t.parquet", "t", **options))
    prepare_table(read_source(tmp_path / "t.parquet"), spec, tmp_path)
    return spec


def test_texts_and_labels_are_recognised(tmp_path):
    table = pa.table({"y2": ["a", "b"] * 40, "review": [f"this film was {row} times as good" for row in range(80)]})
    spec = spec_of(tmp_path, table)
    assert (spec.data.target, spec.data.features.kinds) == ("y2", {"review": "text"})
    assert spec.data.features.drop == []


WORDS = ["red", "blue", "Ünï", "7", "no", "!", "a: b"]
KINDS = {
    "number": lambda random, rows: random.normal(0, 10.0 ** random.integers(-9, 9), rows),
    "whole": lambda random, rows: random.integers(-3, random.integers(0, 1 << 40), rows),
    "flag": lambda random, rows: random.random(rows) < 0.5,
    "category": lambda random, rows: random.choice(WORDS[: random.integers(1, 7)], rows),
    "code": lambda random, rows: [f"K-{number}" for number in random.permutation(rows)],
    "sentence": lambda random, rows: [" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(rows)],
    "moment": lambda random, rows: random.integers(0, 1 << 31, rows).astype("datetime64[s]"),
    "day": lambda random, rows: np.datetime64("1999-01-01") + np.arange(rows),
    "step": lambda random, rows: np.arange(rows) // random.integers(1, 4),
}
ANY_TABLE = {
    "kinds": st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5),
    "target": st.sampled_from(sorted({*KINDS} - {"moment", "day"})),
    "missing": st.sampled_from([0.0, 0.02, 0.3]),
    "seed": st.integers(0, 1 << 16),
}


def passes_its_own_gate(folder, kinds, target, missing, seed):
    """Propose a spec for a table, and prepare the table by it, or refuse the target before anything ran."""
    random, rows = np.random.default_rng(seed), 90
    columns = {
        f"c{at} {kind}": pa.array(KINDS[kind](random, rows), mask=random.random(rows) < missing)
        for at, kind in enumerate(kinds)
    }
    columns["y"] = pa.array(KINDS[target](random, rows))
    pq.write_table(pa.table(columns), folder / "any.parquet")
    raw = read_source(folder / "any.parquet")
    try:
        text = guess_spec(folder / "any.parquet", "any", "y")
    except UsageError as error:
        return str(error)
    spec = read(text)
    lines = [line for line in text.splitlines() if "{expect:" in line]
    assert len(lines) == len(spec.data.expectations) <= MOST_LINES
    try:
        prepare_table(raw, spec, folder)
    except DataError as error:
        return str(error)
    return ""


REFUSALS = ("leaves no input column", "every row has the same", "classes", "one class only", "is it an id")


@examples(25, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(table=st.fixed_dictionaries(ANY_TABLE))
def test_any_table_gets_a_spec_that_it_passes(tmp_path_factory, table):
    refusal = passes_its_own_gate(tmp_path_factory.mktemp("any"), **table)
    assert not refusal or any(words in refusal for words in REFUSALS)


@pytest.mark.soak
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=st.fixed_dictionaries(ANY_TABLE))
def test_many_tables_get_specs_that_they_pass(tmp_path_factory, table):
    refusal = passes_its_own_gate(tmp_path_factory.mktemp("any"), **table)
    assert not refusal or any(words in refusal for words in REFUSALS)


def test_decimal_commas_are_numbers_in_the_loop_that_the_spec_describes(tmp_path):
    rows = "".join(f"{row % 7},{row % 10}5;{1000 + row:,}\n".replace(";1,", ";1.") for row in range(120))
    (tmp_path / "a.csv").write_text(f"price;people\n{rows}")
    text = guess_spec(tmp_path / "a.csv", "a", "price")
    assert YAML(typ="safe").load(text)["data"]["decimal_commas"] == ["price", "people"]
    (tmp_path / "project.yaml").write_text(text)
    spec = read_checked(tmp_path / "project.yaml")
    rows = ingest(spec, tmp_path, tmp_path).slice(8, 1).to_pylist()
    assert rows == [{"price": 1.85, "people": 1008.0}]


def test_decimal_commas_of_other_formats_are_seen_too(tmp_path):
    rows = [{"price": f"{row % 7},{row % 10}5", "size": f"{1 + row % 9},000", "y": row % 2} for row in range(120)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert YAML(typ="safe").load(guess_spec(tmp_path / "a.jsonl", "a", "y"))["data"]["decimal_commas"] == ["price"]


def test_codes_stay_texts_in_the_loop_that_the_spec_describes(tmp_path):
    rows = "".join(f"{[1067, 80331, 4109][row % 3]:05d},{row % 7},{row % 2}\n" for row in range(120))
    (tmp_path / "a.csv").write_text(f"place,x,y\n{rows}")
    spec = YAML(typ="safe").load(guess_spec(tmp_path / "a.csv", "a", "y"))
    assert spec["data"]["na_is_text"] == ["place"]
    assert "place" not in spec["data"]["features"].get("drop", [])

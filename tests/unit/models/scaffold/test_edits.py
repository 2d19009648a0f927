"""A page edits keys of data alone: what it does not touch stays as it is, and nothing that it writes names code."""

from pathlib import Path

import pytest

from models.errors import UsageError
from models.project_spec.reader import read_spec
from models.scaffold.edits import EDITABLE, difference, editable_keys, edited, errors_by_key, values_of
from tasks.host.workspace import CLONE as ROOT

SPEC = """\
# 8 rows.
name: churn

data:
  source: rows.csv
  target: left
  # If rows belong together
  split: {by: stratified}
  features:
    # Also drop what leaks
    drop:
      - code  # an id
      - other  # always the same
  # What was seen
  expectations:
    - {expect: column_values_to_not_be_null, severity: warn, arguments: {column: age}}
    - {expect: "./checks.py:Even", severity: warn}

goal:
  positive: "yes"  # the rarer class
"""
CODE = ("source", "net", "make", "fit", "transform", "loss", "metric", "reads", "function", "families", "weights")


def changed(**fields: str) -> list[str]:
    """The lines that fields remove from the spec and add to it; `__` stands for a dot."""
    named = {key.replace("__", "."): value for key, value in fields.items()}
    lines = difference(SPEC, edited(SPEC, named), "project.yaml")[2:]
    return [line for line in lines if line[:1] in "+-"]


def test_no_key_that_a_page_edits_names_code() -> None:
    assert not [key for key in EDITABLE if key.rpartition(".")[2] in CODE]
    assert {row.form for row in editable_keys().values()} == {
        *("line", "decimal", "choice", "names", "lines", "pairs", "checks")
    }


@pytest.mark.parametrize("path", sorted(ROOT.glob("*/*/project.yaml")), ids=lambda path: path.parent.name)
def test_the_fields_of_a_spec_change_nothing(path: Path) -> None:
    text = path.read_text()
    assert edited(text, values_of(text)) == text
    after = edited(text, {"description": "another one"})
    lines = difference(text, after, "a")[2:]
    assert "+description: another one" in lines
    assert len([line for line in lines if line[:1] == "+"]) <= 2, "a list on several lines becomes one"
    assert after.count("#") == text.count("#")


def test_a_change_is_the_lines_of_its_key() -> None:
    assert changed(data__split__validation="0.2") == [
        "-  split: {by: stratified}",
        "+  split: {by: stratified, validation: 0.2}",
    ]
    assert changed(data__show_rows="false") == ["+  show_rows: false"]
    assert changed(data__features__drop="other\na: b") == ["-      - code  # an id", "+      - 'a: b'"]
    assert changed(data__features__kinds="age: categorical") == ["+    kinds: {age: categorical}"]
    assert changed(data__target="left\nright") == ["-  target: left", "+  target: [left, right]"]
    assert changed(retrain__schedule="every 7 days") == ["+retrain:", "+  schedule: every 7 days"]
    assert changed(goal__positive="") == ["-goal:", '-  positive: "yes"  # the rarer class']
    assert changed(data__target="left\r\n", data__source="./evil.py:load", model__net="./evil.py:Net") == []


@pytest.mark.parametrize(
    "text", ["x\n  source: ./evil.py:load", "{source: ./evil.py:load}", "*a", "!!python/name:os", "? a", ": a"]
)
def test_a_value_is_a_text_and_never_more_keys(text: str, tmp_path: Path) -> None:
    path = tmp_path / "project.yaml"
    path.write_text(edited(SPEC, {"description": text, "data.features.drop": text, "data.id": text}))
    spec = read_spec(path)
    assert spec.data.source == "rows.csv"
    assert spec.description == " ".join(text.split()) == spec.data.id
    assert spec.data.features.drop == [line.strip() for line in text.splitlines()]


def test_a_check_of_great_expectations_may_be_added_and_others_stay() -> None:
    check = "- {expect: column_values_to_be_between, arguments: {column: age, min_value: 0}}"
    assert changed(data__expectations=f"{values_of(SPEC)['data.expectations']}\n{check}") == [f"+    {check}"]
    assert len(changed(data__expectations=check)) == 3


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ('- {expect: "./other.py:Even"}', "your own classes"),
        ('- {expect: "acme.checks:Even"}', "your own classes"),
        ("- {expect: unexpected_rows_expectation, arguments: {unexpected_rows_query: select 1}}", "your own classes"),
        ('- {expect: column_values_to_be_null, arguments: {column: a, row_condition: "@x"}}', "is an expression"),
        ("- {expect: column_values_to_be_null, class: Even}", "expected lines"),
        ("- {expect: column_values_to_be_null, arguments: [a]}", "expected lines"),
        ("column: a", "expected lines"),
        ("- [", "not valid YAML"),
        ("- !!python/name:os.system", "not valid YAML"),
    ],
)
def test_a_check_that_names_code_is_refused(check: str, reason: str) -> None:
    with pytest.raises(UsageError, match=rf"^data\.expectations: .*{reason}"):
        edited(SPEC, {"data.expectations": check})


def test_a_kind_needs_its_column() -> None:
    with pytest.raises(UsageError, match=r"^data\.features\.kinds: got 'categorical', expected lines such as"):
        edited(SPEC, {"data.features.kinds": "age: categorical\ncategorical"})


@pytest.mark.parametrize("text", ["{", "- a", "", "a: b\na: c"])
def test_what_is_no_spec_is_not_edited(text: str) -> None:
    with pytest.raises(UsageError, match=r"project\.yaml"):
        values_of(text)


def test_reasons_stand_beside_their_fields() -> None:
    message = (
        'project.yaml:7: data.split.by: got "x", expected time\nproject.yaml:9: data: two keys contradict\n'
        "project.yaml:3: data.expectations.0.expect: no such check\ndata.target: no column 'x': did you mean 'y'?"
    )
    assert errors_by_key(message) == {
        "data.split.by": 'got "x", expected time',
        "": "project.yaml:9: data: two keys contradict",
        "data.expectations": "no such check",
        "data.target": "no column 'x': did you mean 'y'?",
    }


@pytest.mark.parametrize(
    ("checks", "reason"),
    [
        ("[" * 5000, "more than 20 brackets"),
        ("- &a {expect: column_values_to_not_be_null, arguments: *a}", "an alias"),
    ],
)
def test_checks_that_grow_while_they_are_read_are_refused(checks: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"data.expectations: got {reason}"):
        changed(data__expectations=checks)

"""A first spec says of each column what it was taken for, and proposes the column that names the rows."""

import datetime as dt

import pyarrow as pa
import pytest

from models.scaffold.columns import MOST_LINES, input_lines, plain_id
from models.scaffold.table import guess_spec
from tests.unit.models.scaffold.test_roles import GROWS

ROWS = 100
TABLE = pa.table(
    {
        "age": [None if row % 25 == 0 else row / 3 for row in range(ROWS)],
        "city": [f"c{row % 7}" for row in range(ROWS)],
        "is new": [row % 2 == 0 for row in range(ROWS)],
        "day": [dt.date(2024, 1, 1) + dt.timedelta(row) for row in range(ROWS)],
        "note": [f"the text of row {row}" for row in range(ROWS)],
        "took": pa.array(range(ROWS), pa.duration("s")),
    }
)


def test_each_input_has_a_line_that_says_what_it_was_taken_for_and_why():
    assert list(input_lines(TABLE, {"note": "text"}))[1:] == [
        "    #   age: number, 96 values, 4 % missing",
        "    #   city: category, 7 levels",
        "    #   is new: category, 2 levels",
        "    #   day: date or time, 2024-01-01 to 2024-04-09",
        "    #   note: text, 100 different ones",
        "    #   took: left out, for no model reads duration[s]",
    ]


def test_many_columns_have_a_line_together():
    wide = pa.table({f"x{number}": [0.0, 1.0] for number in range(MOST_LINES + 6)})
    lines = list(input_lines(wide, {}))
    assert len(lines) == MOST_LINES + 2
    assert lines[-1] == "    #   and 6 more, by their types: the card lists all"


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        (["code", "CustomerID"], "CustomerID"),
        (["title", "code"], "code"),
        (["title"], None),  # two people may have one name
        ([], None),
    ],
)
def test_the_id_is_a_column_that_is_named_so_or_holds_codes(columns, name):
    table = pa.table(
        {"title": [f"a b{n}" for n in range(9)], "code": [f"b{n}" for n in range(9)], "CustomerID": range(9)}
    )
    assert plain_id(table, columns) == name


def test_a_first_spec_names_the_id(tmp_path):
    rows = [f"{key},{key % 5},{'yes' if key % 3 else 'no'}" for key in GROWS]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["order_id,x,y", *rows]))
    spec = guess_spec(path, "orders")
    assert "  id: order_id  # another value in every row: it names rows, for labels that come later" in spec
    assert "    #   x: number, 5 values" in spec

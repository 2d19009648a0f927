"""What a page shows of new columns agrees with the spec that is drafted for them."""

import pyarrow as pa

from models.scaffold.summary import MOST_CHARACTERS, column_summaries
from models.scaffold.table import guess_spec
from models.sources.sample import whole


def test_each_column_has_its_role_and_the_reason() -> None:
    table = pa.table(
        {
            "person_id": [f"p{row}" for row in range(60)],
            "age": [None if row % 6 == 0 else row for row in range(60)],
            "plan": ["free" if row % 4 else "p" * 50 for row in range(60)],
            "country": ["AT"] * 60,
            "left": ["yes" if row % 3 else "no" for row in range(60)],
        }
    )
    columns = column_summaries(table, guess_spec(whole(table), "churn", "left", "rows.csv"))
    assert {column.name: column.taken_for for column in columns} == {
        "person_id": "names the rows, never an input",
        "age": "number, 50 values, 17 % missing",
        "plan": "category, 2 levels",
        "country": "left out: always the same",
        "left": "the target",
    }
    assert columns[1].examples == ["", "1", "2", "3", "4"]
    pictures = pa.table({"kind": ["cat", "dog"], "age": [1, 2], "photo": [b"ab", b"abc"]})
    spec = "data: {target: kind, kind: image, image: {column: photo}}\n"
    assert [(column.taken_for, column.examples) for column in column_summaries(pictures, spec)] == [
        ("the target", ["cat", "dog"]),
        ("no input: the model sees the picture alone", ["1", "2"]),
        ("the picture", ["2 bytes", "3 bytes"]),
    ]
    assert columns[2].examples[0] == "p" * MOST_CHARACTERS + "…"

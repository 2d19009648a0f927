import numpy as np
import pyarrow as pa
import pytest
from ruamel.yaml import YAML

from models.scaffold.expectations import MOST_LINES, yaml_text
from tests.unit.models.scaffold.test_table import spec_of


def test_of_a_wide_table_thirty_expectations_are_proposed_for_what_says_most_about_the_target(tmp_path):
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 300)
    columns = {f"x{at}": random.normal(0, 1, 300) for at in range(70)}
    columns |= {"told": y + random.normal(0, 0.5, 300), "plan": [f"{'ab'[each]}{each}" for each in y]}
    spec = spec_of(tmp_path, pa.table({**columns, "y": y}))
    assert len(spec.data.expectations) <= MOST_LINES
    named = {one.arguments.get("column") for one in spec.data.expectations}
    assert {"told", "plan"} <= named


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "Os\x7flo",
        "Malm\u00c3\u009f",
        "a\x85b",
        "a\u2028b\u2029",
        "\ufeffx",
        "\U000e0001",
        "\t\n\x00",
        "5\u00a0kg",
        '"',
        "é",
    ],
)
def test_any_text_of_the_data_is_read_back_from_the_spec(text):
    for kind in ("safe", "rt"):
        assert YAML(typ=kind).load(f"- {{a: {yaml_text(text)}}}  # {yaml_text(text)}\n") == [{"a": text}]

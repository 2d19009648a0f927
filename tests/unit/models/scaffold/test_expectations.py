import numpy as np
import pyarrow as pa

from models.scaffold.expectations import MOST_LINES
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

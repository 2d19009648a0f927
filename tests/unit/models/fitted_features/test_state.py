"""What `fit` may return, and what is refused with the cure."""

import numpy as np
import pyarrow as pa
import pytest

from models.errors import UserCodeError
from models.fitted_features.state import FeatureCode, InputColumns, fit_state
from models.inputs.types import as_text

ROWS = pa.table(
    {"number": [1.0, 2.0, 4.0, None], "month": [1, 1, 12, None], "city": ["a", "b", "a", ""], "y": [*"nnyy"]}
)
INPUTS = InputColumns({"number": ROWS["number"].to_numpy()}, {name: as_text(ROWS[name]) for name in ("month", "city")})


def fitted(tmp_path, body, transform=None):
    (tmp_path / "features.py").write_text(f"import numpy as np\ndef fit(frame):\n    return {body}\n")
    return fit_state(FeatureCode("./features.py:fit", transform, tmp_path), ROWS, INPUTS, as_text)


def test_series_become_lookups_whose_keys_are_compared_as_categories_are(tmp_path):
    body = "{'a': frame.groupby('month')['number'].mean(), 'b': frame.groupby('city')['number'].max()}"
    first, second = fitted(tmp_path, body).lookups
    assert (first.column, first.keys, first.values) == ("month", ["1", "12"], [1.5, 4.0])
    assert (second.keys, second.values) == (["a", "b"], [4.0, 2.0])


def test_numbers_and_arrays_are_the_state_of_transform(tmp_path):
    body = "{'m': frame['number'].mean(), 'at': np.array([[1, 2]], '>i4')}"
    state = fitted(tmp_path, body, "./features.py:fit")
    assert state.arrays["at"].dtype == np.int64  # torch takes no other order of bytes
    assert {name: array.tolist() for name, array in state.arrays.items()} == {"m": 7 / 3, "at": [[1, 2]]}
    assert state.equals(fitted(tmp_path, "{'m': 7 / 3, 'at': [[1, 2]]}", "./features.py:fit"))
    assert not state.equals(fitted(tmp_path, "{'m': 1.0, 'at': [[1, 2]]}", "./features.py:fit"))
    np.testing.assert_array_equal(state.columns(INPUTS)["number"], INPUTS.numbers["number"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("None", "got NoneType, expected a dict"),
        ("{'a': frame.groupby('y')['number'].mean()}", r"index of 'a' is named 'y'.*\(city, month\)"),
        ("{'a': frame['number'].mean()}", "'a' is no pandas Series.*data.features.transform"),
        ("{'city': frame.groupby('city')['number'].mean()}", "got the name 'city'.*rename it"),
        ("{'a': frame.groupby('city')['y'].max()}", "'a' is a .* that holds no numbers"),
        ("{'a': frame.groupby('city')['number'].mean() / 0}", "not finite"),
        ("{'a': frame.set_index('city')['number']}", "holds a value of 'city' twice"),
        ("{'a': frame.groupby('city')[['number']].mean()}", "'a' is a DataFrame, expected a pandas Series"),
        ("{'a': frame['number'].astype('M8[s]').groupby(frame['city']).max()}", "'a' holds times.*seconds"),
        ("{'a': np.timedelta64(1, 'D')}", "'a' holds times.*seconds"),
        ("{'a': 1j}", "'a' is a complex that holds no numbers"),
        ("{'a': ['1']}", "'a' is a list that holds no numbers"),
        ("{'a': [[1], [1, 2]]}", "'a' is a list that holds no numbers"),
        ("{'a': np.broadcast_to(0.0, 10**9)}", "'a' has 1,000,000,000 numbers, expected at most 10,000,000"),
        (
            "{'a': frame.groupby(frame['city'] + '!')['number'].max()}",
            "no row has .*'a!'.*'city' such as 'a'",
        ),
        ("{'y': 1.0}", "got the name 'y'.*rename it"),
        ("{'a': frame.nothing}", "raised AttributeError"),
    ],
)
def test_what_is_no_state_is_an_error_with_the_cure(tmp_path, body, message):
    with pytest.raises(UserCodeError, match=message):
        fitted(tmp_path, body)

from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest

from models.errors import DataError
from models.inference import row_values
from models.inputs.times import EARLIEST_S, LATEST_S, as_seconds

DAY_S = 86_400.0
NOON_S = datetime(2024, 6, 1, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("column", "seconds"),
    [
        (pa.array(["2024-06-01T12:00:00Z", None, ""]), [NOON_S, np.nan, np.nan]),
        (pa.array(["2024-06-01T14:00:00+02:00"]), [NOON_S]),
        (pa.array([" 2024-06-01 12:00 ", "1970-01-01"]), [NOON_S, 0.0]),
        (pa.array(["1717243200", "0.5"]), [NOON_S, 0.5]),
        (pa.array([date(1969, 12, 31), None]), [-DAY_S, np.nan]),
        (pa.array([1, None]), [1.0, np.nan]),
        (pa.array([datetime(2024, 6, 1, 12)], pa.timestamp("ns")), [NOON_S]),
        (pa.array([datetime(2024, 6, 1, 12, tzinfo=UTC)], pa.timestamp("s", "Europe/Berlin")), [NOON_S]),
    ],
)
def test_times_of_every_form_are_seconds_since_1970_in_utc(column, seconds):
    np.testing.assert_array_equal(as_seconds(pa.chunked_array([column]), "when"), seconds)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["soon"], "'when', declared datetime: got 'soon'.*ISO 8601"),
        (["2024-05-31", "1 June", "2024-06-02 07:00"], "got '1 June', expected a time:"),
        (["2024-05-31T14:30:00Z", None, "soon", "later"], "got 'soon', expected a time:"),
        (["1717243200", "soon"], "got 'soon', expected a time:"),
        (["2024-05-31", "2024-06-01T00:00:00Z"], "got '2024-06-01T00:00:00Z', expected all times with a zone, or all"),
        ([1, 1_717_243_200_000], "row 2: got 1.71724e[+]12.*seconds"),
    ],
)
def test_what_is_no_time_is_refused_with_the_cure(values, message):
    with pytest.raises(DataError, match=message):
        as_seconds(pa.chunked_array([pa.array(values)]), "when")


def test_the_span_of_times_is_that_of_the_module_that_ships_alone():
    assert (row_values.EARLIEST_S, row_values.LATEST_S) == (EARLIEST_S, LATEST_S)

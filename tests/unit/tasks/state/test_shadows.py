"""What shadows said is kept beside how far they went."""

from datetime import UTC, datetime

import pyarrow as pa

from tasks.state.shadows import MOST_COMPARED, answers, note_of, place_of, set_place, shadow_log


def test_a_place_and_its_note_are_kept_for_each_version(tmp_path):
    assert (place_of(tmp_path, "2"), note_of(tmp_path, "2")) == (None, "")
    set_place(tmp_path, "2", 7, "why")
    assert (place_of(tmp_path, "2"), note_of(tmp_path, "2"), place_of(tmp_path, "3")) == (7, "why", None)


def test_the_last_rows_are_compared(tmp_path):
    log, count = shadow_log(tmp_path, "2"), MOST_COMPARED // 2 + 1
    for first in (0, count):
        ids = [str(number) for number in range(first, first + count)]
        at = pa.array([datetime(2026, 11, 1, tzinfo=UTC)] * count, pa.timestamp("us", tz="UTC"))
        values = pa.array([float(number) for number in range(first, first + count)])
        log.append(pa.table({"id": ids, "at": at, "score": values, "shadow.score": values}))
    ids, _, answered, shadow = answers(tmp_path, "2")
    assert (len(ids), ids[0], ids[-1]) == (MOST_COMPARED, "2", str(2 * count - 1))
    assert (answered == shadow).all()


def test_what_the_version_itself_answered_as_a_canary_is_not_compared(tmp_path):
    at = pa.array([datetime(2026, 11, 1, tzinfo=UTC)] * 3, pa.timestamp("us", tz="UTC"))
    rows = {"id": ["a", "b", "c"], "at": at, "version": ["1", "2", None], "score": [0.1, 0.9, 0.2]}
    shadow_log(tmp_path, "2").append(pa.table({**rows, "shadow.score": [0.9, 0.9, 0.9]}))
    assert answers(tmp_path, "2").ids == ["a", "c"]
    shadow_log(tmp_path, "1").append(pa.table({**rows, "version": ["1"] * 3, "shadow.score": [0.1, 0.9, 0.2]}))
    assert answers(tmp_path, "1").ids == []

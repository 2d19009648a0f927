import pytest

from models.errors import DataError
from models.scratch import arrays_in
from models.sources.read import read_source
from models.sources.readers import csv_stream

FIRST = ["", "1", "7", "1.5", "true", "2020-01-01", "10:00", "2020-01-01 10:00:00", "2020-01-01 10:00:00Z", "abc"]
LATE = [*FIRST[1:], "2020-01-01 10:00:00.5", "2020-01-01 10:00:00.5Z", "18446744073709551615", "NA", 'a "b"', '"x\ny"']


@pytest.fixture
def read_streamed(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_stream, "LARGE_BYTES", 0)
    monkeypatch.setattr(csv_stream, "_BLOCK_BYTES", 500)

    def read(path, **rules):
        with arrays_in(tmp_path / "scratch", large=1):
            return read_source(path, **rules)

    return read


def test_a_column_has_the_type_of_reading_it_whole_however_late_a_value_shows_it(tmp_path, read_streamed):
    """A file for each first value: each late one costs a pass over all columns of its file."""
    types = set()
    for first in FIRST:
        early = ",".join([first] * len(LATE))
        lines = [",".join(f"c{number}" for number in range(len(LATE))), *[early] * 40, ",".join(LATE), early]
        (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
        streamed, whole = read_streamed(tmp_path / "rows.csv"), read_source(tmp_path / "rows.csv")
        assert streamed.schema == whole.schema
        assert streamed.equals(whole)
        types.update(map(str, whole.schema.types))
        assert not [*(tmp_path / "scratch").iterdir()]
    assert len(types) > 9


def test_ids_keep_their_digits_and_texts_their_na(tmp_path, read_streamed):
    lines = ["id,state,hash", *(f"{row},NA,{row}" for row in range(500)), "00001,,18446744073709551615"]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    rules = {"id_column": "id", "na_is_text": ["state"]}
    streamed, whole = (read(tmp_path / "rows.csv", **rules) for read in (read_streamed, read_source))
    assert streamed.equals(whole)
    assert streamed.slice(499).to_pylist() == [
        {"id": "499", "state": "NA", "hash": 499},
        {"id": "00001", "state": None, "hash": 2**64 - 1},
    ]


@pytest.mark.parametrize("last", [b"1,2,3\n", b"1,\xff\n", b'1,"open\n'])
def test_a_line_that_is_no_row_is_told_as_by_reading_the_file_whole(tmp_path, read_streamed, last):
    (tmp_path / "rows.csv").write_bytes(b"a,b\n" + b"1,x\n" * 999 + last)
    messages = []
    for read in (read_streamed, read_source):
        with pytest.raises(DataError) as told:
            read(tmp_path / "rows.csv")
        messages.append(str(told.value))
    assert messages[0] == messages[1]

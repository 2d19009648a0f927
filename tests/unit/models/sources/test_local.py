"""A file or folder that is away or that no reader takes is refused before a run, with its path."""

import pytest

from models.errors import UsageError
from models.project_spec.blocks import Data
from models.sources.local import local_path
from models.sources.schemes import scheme_of
from models.sources.source import Source
from models.validation.source_check import check_source


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.parquet", "a.txt", "a.rda"])
def test_what_is_there_and_has_a_reader_passes(tmp_path, name):
    (tmp_path / name).write_text("x,y\n1,2\n")
    check_source(Data(source=name, target="y"), tmp_path)
    assert local_path(Source(name, tmp_path)) == tmp_path / name


@pytest.mark.parametrize("source", ["pypi:scikit-learn==1.9.1:a.csv", "./source.py:load"])
def test_what_is_elsewhere_is_not_asked(tmp_path, source):
    check_source(Data(source=source, target="y"), tmp_path)
    assert scheme_of(source).local(Source(source, tmp_path)) is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nope.csv", "nope.csv: no such file or folder: correct the path"),
        ("*.csv", r"\*.csv: no such file or folder"),
        ("a.docx", r"a.docx: got a .docx file, expected a .csv"),
        ("passwd", "passwd: got a nameless file"),
        ("empty", "empty: got no file to read in it"),
        ("/dev/zero", "neither a file nor a folder"),
    ],
)
def test_what_is_away_or_no_table_is_refused(tmp_path, source, message):
    for name in ("a.docx", "passwd"):
        (tmp_path / name).write_text("x,y\n1,2\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=f"data.source: .*{message}"):
        check_source(Data(source=source, target="y"), tmp_path)


def test_what_is_away_is_no_path_for_the_checks_of_a_loop(tmp_path):
    assert local_path(Source("nope.csv", tmp_path)) is None

"""Making a project from a data file: whole or not at all."""

from pathlib import Path

import pytest
from PIL import Image

from models.errors import DataError, UsageError
from models.project_spec.reader import read_spec
from tasks.host.workspace import Workspace
from tasks.operations.scaffold import copy_example, examples, make_project, origin_of

CSV = "id,colour,size,left\n" + "".join(f"{n},{'red' if n % 2 else 'blue'},{n * 0.5},{n % 3 == 0}\n" for n in range(60))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "customers.csv"
    path.write_text(CSV)
    return path


def test_a_project_has_its_data_and_a_spec_that_reads(tmp_path: Path, data: Path) -> None:
    made = make_project(Workspace(tmp_path), "churn", data, "left")
    spec = read_spec(made.spec_path)
    assert (spec.name, spec.data.source, spec.data.target) == ("churn", "customers.csv", "left")
    assert (made.folder / "customers.csv").read_text() == CSV


def test_a_project_with_an_own_net_has_its_file(tmp_path: Path, data: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\n\n\ndef build(num_numeric, num_outputs):\n    pass\n")
    project = make_project(Workspace(tmp_path), "churn", data, "left", f"{tmp_path / 'net.py'}:build")
    spec = read_spec(project.spec_path)
    assert (spec.model.net, spec.search.trials) == ("./net.py:build", 10)
    assert (project.folder / "net.py").read_text() == (tmp_path / "net.py").read_text()


@pytest.mark.parametrize(
    ("net", "message"),
    [("cnn", "takes no data of kind table"), ("tres", "did you mean 'trees'"), ("./no.py:build", "there is no ")],
)
def test_a_net_that_cannot_learn_from_the_data_is_refused(tmp_path: Path, data: Path, net: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_project(Workspace(tmp_path), "churn", data, "left", net)
    assert not (tmp_path / "projects" / "churn").exists()


def test_columns_and_a_guess_are_offered(data: Path, tmp_path: Path) -> None:
    origin = origin_of(Workspace(tmp_path), str(data))
    columns, guess = origin.columns, origin.guessed_target
    assert columns == ["id", "colour", "size", "left"]
    assert guess in columns


@pytest.mark.parametrize("name", ["Churn", "1st", "a b", "../up"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, data: Path, name: str) -> None:
    with pytest.raises(UsageError, match="lower-case"):
        make_project(Workspace(tmp_path), name, data, "left")


def test_a_taken_name_is_refused_and_left_alone(tmp_path: Path, data: Path) -> None:
    (tmp_path / "projects" / "churn").mkdir(parents=True)
    with pytest.raises(UsageError, match="there already"):
        make_project(Workspace(tmp_path), "churn", data, "left")
    assert list((tmp_path / "projects" / "churn").iterdir()) == []


def test_nothing_is_left_when_the_file_cannot_be_read(tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("")
    with pytest.raises(DataError):
        make_project(Workspace(tmp_path), "bad", bad, "x")
    assert not (tmp_path / "projects" / "bad").exists()


def test_an_unknown_target_is_refused_with_the_nearest(tmp_path: Path, data: Path) -> None:
    with pytest.raises(UsageError, match="left"):
        make_project(Workspace(tmp_path), "churn", data, "lef")


def test_a_text_needs_no_target(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("It is a truth universally acknowledged.\n" * 400)
    origin = origin_of(Workspace(tmp_path), str(book))
    assert (origin.columns, origin.guessed_target) == ([], "")
    with pytest.raises(UsageError, match="leave it out"):
        make_project(Workspace(tmp_path), "book", book, "text")
    made = make_project(Workspace(tmp_path), "book", book)
    spec = read_spec(made.spec_path)
    assert (spec.data.kind, spec.data.source, spec.data.target) == ("text", "book.txt", "text")
    assert "language model" in (made.folder / "README.md").read_text()


@pytest.mark.parametrize("example", ["batch", "own-net", "pictures", "series", "table"])
def test_an_example_is_copied_under_its_own_name(tmp_path: Path, example: str) -> None:
    made = copy_example(Workspace(tmp_path), "mine", example)
    spec = read_spec(made.spec_path)
    assert (spec.name, made.folder) == ("mine", tmp_path / "projects" / "mine")
    source = spec.data.source.removeprefix("./").partition(":")[0]
    assert (made.folder / source).read_bytes() == (examples()[example] / source).read_bytes()


def test_the_help_of_the_command_names_every_example() -> None:
    from flows.commands.new import command

    (option,) = [one for one in command.params if one.name == "example"]
    assert all(name in str(option.help) for name in examples())


def test_an_unknown_example_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected one of batch, own-net, own-source, pictures, series, table, texts"):
        copy_example(Workspace(tmp_path), "mine", "tables")
    assert not (tmp_path / "projects").exists()


def test_a_source_is_named_as_the_spec_will_name_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = Workspace(tmp_path / "workspace")
    (tmp_path / "code.py").write_text(f"import pandas as pd\n\n\ndef load():\n    return pd.read_csv({str(data)!r})\n")
    named = {str(data): str(data), "cust*.csv": f"file://{tmp_path}/cust*.csv", f"file://{data}": f"file://{data}"}
    for text, source in named.items():
        assert origin_of(workspace, text).source == source
    project = make_project(workspace, "own", origin_of(workspace, "./code.py:load"), "left")
    assert (project.spec().data.source, (project.folder / "code.py").is_file()) == ("./code.py:load", True)


def test_a_folder_of_pictures_is_not_copied(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "pets" / name / "a.png")
    data = make_project(Workspace(tmp_path), "pets", tmp_path / "pets").spec().data
    assert (data.source, data.target, data.kind) == (str(tmp_path / "pets"), "class", "image")

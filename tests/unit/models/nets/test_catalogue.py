import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from models.errors import UsageError
from models.nets import catalogue
from models.nets.catalogue import CATALOGUE, NETS, net_name, row_of, unused
from models.project_spec.blocks import Train
from models.project_spec.references import resolve
from models.project_spec.search import Search


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_searched_argument_is_one_the_net_takes(name):
    space = row_of(name).space
    Search(space=space)
    factory = resolve(name, Path(), NETS)
    arguments = inspect.signature(factory).parameters
    assert {key.removeprefix("model.") for key in space if key.startswith("model.")} <= set(arguments)


def test_what_plays_no_part_for_trees_is_known_and_for_nets_only_the_refit():
    for net in ("trees", "linear"):
        assert set(unused(net, Train.model_fields)) == catalogue._OF_DESCENT
    assert unused("mlp", Train.model_fields) == unused("./own.py:Net", Train.model_fields) == ["refit"]


def test_own_nets_are_searched_over_training_alone():
    assert set(row_of("./net.py:Net").space) == {"train.lr", "train.weight_decay"}
    assert "train.lr" not in row_of("trees").space


@pytest.mark.parametrize("kind", ["table", "image", "series"])
def test_auto_stands_for_a_net_that_takes_the_kind(kind):
    assert kind in CATALOGUE[net_name("auto", kind)].kinds


def test_wrong_names_and_kinds_say_what_there_is():
    with pytest.raises(UsageError, match="did you mean 'transformer'"):
        net_name("transfromer", "table")
    with pytest.raises(UsageError, match="expected one of mlp, tabm, transformer, trees, linear"):
        net_name("cnn", "table")
    assert net_name("./net.py:Net", "table") == "./net.py:Net"


def test_reading_spaces_imports_no_torch():
    code = "import sys, models.nets.catalogue as c; c.row_of('mlp'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

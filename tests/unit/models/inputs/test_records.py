import numpy as np
import pytest

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.inputs.categorical.record import CategoricalInput
from models.inputs.datetime.record import DatetimeInput
from models.inputs.datetime.rows import datetime_features
from models.inputs.fitted.record import FittedInput
from models.inputs.gap.record import GapInput
from models.inputs.image.record import ImageInput
from models.inputs.nodes import NODES
from models.inputs.numeric.record import NumericInput
from models.inputs.record import InputRecord
from models.inputs.records import RECORDS, in_order, owners, record_of
from models.inputs.score.record import ScoreInput
from models.inputs.target_mean.record import TargetMeanInput
from models.inputs.text.record import TextColumn
from models.project_spec.blocks import Image

EXAMPLES: list[InputRecord] = [
    NumericInput(name="n", fill=0.0, source="m", ahead=2),
    GapInput(name="g", of="n"),
    ScoreInput(name="s", of="n", knots=[0.0, 1.0], scores=[-1.0, 1.0]),
    TargetMeanInput(name="m", of="c", levels=["u", "v"], values=[0.0, 1.0, -1.0]),
    FittedInput(name="f", fill=0.0),
    CategoricalInput(name="c", categories=["u", "v"]),
    DatetimeInput(name="d", cycles=["day", "week"], trend=True, low=0.0, high=1.0, shift=0.0, scale=1.0),
    TextColumn(name="t", num_terms=9, num_features=3),
    ImageInput(name="i", image=Image(column="i", height=2, width=2), mean=[0.0], std=[1.0]),
]


def test_each_kind_has_a_record_that_names_it() -> None:
    kinds = [part.kind for part in EXAMPLES]
    assert [kind for kind in RECORDS if kind in kinds] == kinds
    assert [RECORDS[part.kind] for part in EXAMPLES] == [type(part) for part in EXAMPLES]


def test_each_kind_has_nodes_for_every_tensor_that_it_becomes_a_part_of() -> None:
    assert list(NODES) == list(RECORDS)
    assert [tuple(NODES[part.kind].tensors) for part in EXAMPLES] == [
        ("numeric",),
        ("numeric",),
        ("numeric",),
        ("numeric",),
        ("numeric",),
        ("categorical",),
        ("numeric",),
        ("numeric", "words"),
        ("image",),
    ]


def test_inputs_stand_in_the_order_of_tensors_however_they_come() -> None:
    more = [EXAMPLES[0].model_copy(update={"name": "later"}), *EXAMPLES[::-1]]
    assert [part.name for part in in_order(more)] == ["later", "n", "g", "s", "m", "f", "c", "d", "t", "i"]
    preparation = Preparation(kind="table", task="binary", target=TargetEncoding(name="y"), inputs=more)
    assert preparation.inputs == in_order(more)
    changed = preparation.with_inputs("numeric", [EXAMPLES[0]])
    assert changed.inputs == EXAMPLES


def test_a_preparation_is_read_as_it_was_stored() -> None:
    preparation = Preparation(kind="table", task="binary", target=TargetEncoding(name="y"), inputs=EXAMPLES)
    assert Preparation.model_validate_json(preparation.model_dump_json()) == preparation


def test_what_an_input_becomes_in_the_tensors() -> None:
    assert [part.width for part in EXAMPLES] == [1, 1, 1, 1, 1, 0, 5, 3, 0]
    assert [part.cardinalities for part in EXAMPLES] == [(), (), (), (), (), (3,), (), (), ()]
    assert [part.column for part in EXAMPLES] == ["m", "n", "n", "c", "f", "c", "d", "t", "i"]


def test_a_kind_that_does_not_exist_is_refused_with_the_cure() -> None:
    with pytest.raises(ValueError, match=r"got an input of kind 'sound', expected one of numeric.*install that one"):
        record_of({"kind": "sound", "form": "text", "name": "t"})


def test_a_column_of_the_tensor_has_the_input_whose_change_moves_it() -> None:
    """Of two inputs of a kind: the columns of times stand cycle by cycle, not time by time."""
    assert owners(EXAMPLES) == ["n", "g", "s", "m", "f", "d", "d", "d", "d", "d", "t", "t", "t"]
    times = [EXAMPLES[6].model_copy(update={"name": name}) for name in ("d", "e")]
    assert owners(times) == ["d", "d", "e", "e", "d", "d", "e", "e", "d", "e"]
    first, second = np.array([[0.2, 0.4]]), np.array([[0.2, 0.5]])
    moved = datetime_features(first, times) != datetime_features(second, times)
    assert {name for name, is_moved in zip(owners(times), moved[0], strict=True) if is_moved} == {"e"}

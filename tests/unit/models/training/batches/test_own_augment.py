"""The user's own augmentation: checked before training, decided by its seed, and no trace in other draws."""

import random

import numpy as np
import pytest
import torch

from models.data.preparation import Preparation
from models.errors import UserCodeError
from models.inputs.datetime.record import DatetimeInput
from models.inputs.datetime.rows import datetime_features
from models.inputs.image.record import ImageInput
from models.inputs.text.record import TextColumn
from models.project_spec.blocks import Image
from models.training.batches.examples import open_examples
from models.training.batches.micro_batch import BatchMaker
from models.training.batches.own_augment import OwnAugmentation, columns_of
from tests.tiny_jobs import preparation_of

SHAPE = Image(height=4, width=6, channels=2)
NOISY = "images + torch.rand(1) + np.random.random() + random.random()"


@pytest.fixture
def own(tmp_path):
    def make(body, image=SHAPE, kind="image"):
        code = "import random\nimport numpy as np\nimport torch\nOWN = np.random.default_rng()\n"
        code += f"CONSTANT = torch.ones({(2, image.channels, image.height, image.width)})\n"
        (tmp_path / "augment.py").write_text(f"{code}def change(images):\n    return {body}\n")
        preparation = preparation_of(kind, "regression" if kind == "series" else "binary")
        if kind == "image":
            pixels = ImageInput(
                name=image.column, image=image, mean=[0.5] * image.channels, std=[0.25] * image.channels
            )
            preparation = preparation.with_inputs("image", [pixels])
        return OwnAugmentation.of("./augment.py:change", tmp_path, preparation)

    return make


def test_the_seed_decides_and_other_draws_go_on_as_without_it(own):
    noisy, images = own(NOISY), torch.zeros(2, 2, 4, 6)

    def change(images, seed):
        return noisy.change({"image": images}, seed)["image"]

    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    first = change(images, 7)
    assert torch.equal(first, change(images, 7))
    assert not torch.equal(first, change(images, 8))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (random.getstate(), np.random.get_state()[1].tolist())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("images[:1]", r"returned \(1, 2, 4, 6\) torch.float32 for \(2, 2, 4, 6\)"),
        ("CONSTANT", r"returned \(2, 2, 4, 6\) torch.float32 for \(1, 2, 4, 6\)"),
        ("images.double()", "torch.float64"),
        ("None", "returned NoneType"),
        ("images / 0", "not finite"),
        ("images + OWN.random()", "another batch for the same seed"),
        ("images.nothing", "raised AttributeError"),
    ],
)
def test_what_would_break_a_training_is_refused_before_it(own, body, message):
    with pytest.raises(UserCodeError, match=message):
        own(body)


def test_batches_are_changed_in_training_alone_by_their_place(own, make_job):
    job = make_job(kind="image", task="multiclass", augment={"function": "./augment.py:change"})
    preparation = Preparation.load(job.prepared)
    examples = open_examples(job, preparation)[0]
    made = BatchMaker(job, examples, None, own(NOISY, preparation.pixels.image))
    some = torch.arange(8)
    changed = made.at(some, 1, 2, 0).inputs["image"]
    assert torch.equal(changed, made.at(some, 1, 2, 0).inputs["image"])
    for other in ((2, 2, 0), (1, 3, 0), (1, 2, 1)):
        assert not torch.equal(changed, made.at(some, *other).inputs["image"])
    assert not torch.equal(changed, examples.gather(some)["image"])


NOISY_COLUMNS = "{name: x + torch.randn(1) if x.is_floating_point() else x for name, x in images.items()}"


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("table", "images['x0']", "returned Tensor, expected a dict of the columns that it got"),
        ("table", "{'x0': images['x0']}", "returned no column 'x1'"),
        ("table", "{**images, 'x7': images['x0']}", "returned another column, 'x7'"),
        (
            "table",
            "{**images, 'x0': images['x0'].double()}",
            r"returned column 'x0' as \(2,\) torch.float64 for \(2,\)",
        ),
        (
            "table",
            "{**images, 'c': images['c'] + 9}",
            r"returned the index \d+ in column 'c', expected 0 \(missing\) to 3",
        ),
        ("table", "{**images, 'x0': images['x0'] / 0}", "not finite for finite numbers"),
        ("series", "{**images, 'x0': images['x0'][:, 1:]}", r"column 'x0' as \(2, 5\) torch.float32 for \(2, 6\)"),
        ("series", "{**images, 'x0': images['x0'] + OWN.random()}", "another batch for the same seed"),
    ],
)
def test_columns_that_would_break_a_training_are_refused_before_it(own, kind, body, message):
    with pytest.raises(UserCodeError, match=message):
        own(body, kind=kind)


def test_a_column_of_several_features_is_one_column_and_keeps_its_place():
    """Times become several features, which lie between the numbers and the texts."""
    day = DatetimeInput(name="day", cycles=["week"], trend=True, low=0.0, high=1.0, shift=0.0, scale=1.0)
    table = (
        preparation_of("table", "binary")
        .with_inputs("datetime", [day])
        .with_inputs("text", [TextColumn(name="note", num_terms=9, num_features=2)])
    )

    def change(columns):
        return {name: part + len(name) if name in ("day", "note") else part for name, part in columns.items()}

    own = OwnAugmentation("./a.py:change", change, columns_of(table.kind, table.inputs))
    inputs = {"numeric": torch.zeros(4, table.num_numeric), "categorical": torch.ones(4, 1, dtype=torch.int64)}
    changed = own.change(inputs, 0)
    assert changed["numeric"][0].tolist() == [0, 0, 0, 3, 3, 3, 4, 4]
    assert torch.equal(changed["categorical"], inputs["categorical"])
    assert not inputs["numeric"].any()


def test_two_times_are_a_column_each_though_their_features_alternate():
    days = [
        DatetimeInput(name=name, cycles=["day", "week"], trend=True, low=0.0, high=1e6, shift=0.0, scale=1.0)
        for name in ("ordered", "paid")
    ]
    table = preparation_of("table", "binary").with_inputs("datetime", days)

    def change(columns):
        return {name: part + 1 if name == "paid" else part for name, part in columns.items()}

    own = OwnAugmentation("./a.py:change", change, columns_of(table.kind, table.inputs))
    inputs = {"numeric": torch.zeros(4, table.num_numeric), "categorical": torch.ones(4, 1, dtype=torch.int64)}
    seconds = np.array([[100_000.0, 200_000.0], [100_000.0, 300_000.0]])
    encoded = datetime_features(seconds, days)
    moved = (encoded[0] != encoded[1]).astype(float).tolist()
    assert own.change(inputs, 0)["numeric"][0, -len(moved) :].tolist() == moved


@pytest.mark.parametrize(("kind", "tensor"), [("table", "numeric"), ("series", "series")])
def test_columns_are_changed_in_training_alone_by_their_place(own, make_job, kind, tensor):
    job = make_job(kind, "regression", augment={"function": "./augment.py:change"})
    examples = open_examples(job, Preparation.load(job.prepared))[0]
    made, some = BatchMaker(job, examples, None, own(NOISY_COLUMNS, kind=kind)), torch.arange(8)
    changed = made.at(some, 1, 2, 0).inputs[tensor]
    assert torch.equal(changed, made.at(some, 1, 2, 0).inputs[tensor])
    assert not torch.equal(changed, made.at(some, 2, 2, 0).inputs[tensor])
    assert not torch.equal(changed, examples.gather(some)[tensor])

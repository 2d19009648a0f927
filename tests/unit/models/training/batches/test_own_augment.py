"""The user's own augmentation: checked before training, decided by its seed, and no trace in other draws."""

import random

import numpy as np
import pytest
import torch

from models.data.preparation import Preparation
from models.errors import UserCodeError
from models.project_spec.blocks import Image
from models.training.batches.examples import open_examples
from models.training.batches.micro_batch import BatchMaker
from models.training.batches.own_augment import OwnAugmentation

SHAPE = Image(height=4, width=6, channels=2)
NOISY = "images + torch.rand(1) + np.random.random() + random.random()"


@pytest.fixture
def own(tmp_path):
    def make(body, image=SHAPE):
        code = "import random\nimport numpy as np\nimport torch\nOWN = np.random.default_rng()\n"
        code += f"CONSTANT = torch.ones({(2, image.channels, image.height, image.width)})\n"
        (tmp_path / "augment.py").write_text(f"{code}def change(images):\n    return {body}\n")
        return OwnAugmentation.of("./augment.py:change", tmp_path, image)

    return make


def test_the_seed_decides_and_other_draws_go_on_as_without_it(own):
    change, images = own(NOISY).change, torch.zeros(2, 2, 4, 6)
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
        ("images + OWN.random()", "other images for the same seed"),
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

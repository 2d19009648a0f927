import numpy as np
import pytest
import torch
from torch import nn

from models.errors import UsageError
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.project_spec.blocks import Model
from models.project_spec.methods import Pretrain
from models.training.optimisation.pretrain import MaskingScheme, reconstructor
from models.training.rank import run_job

TABLE = Sizes("table", "binary", num_numeric=3, cardinalities=(4, 5))
IMAGE = Sizes("image", "multiclass", image=(2, 9, 8), num_outputs=3)


def generator():
    return np.random.default_rng(0)


def test_giving_back_what_was_hidden_costs_nothing_and_what_was_shown_does_not_count():
    hiding = MaskingScheme(TABLE, Pretrain(mask=0.4))
    inputs = {"numeric": torch.randn(30, 3), "categorical": torch.randint(0, 4, (30, 2))}
    _, target = hiding.hide(inputs, generator())
    logits = [50.0 * nn.functional.one_hot(inputs["categorical"][:, i], n) for i, n in enumerate((4, 5))]
    right = torch.cat([inputs["numeric"], *logits], dim=1)
    assert float(hiding.loss(right, target)) == pytest.approx(0, abs=1e-4)
    wrong = right + 1.0
    numbers_hidden = target[:, 1, :3].sum()
    assert float(hiding.loss(wrong, target)) == pytest.approx(float(numbers_hidden) / (0.4 * 5), rel=1e-4)


def test_whole_patches_of_an_image_are_hidden_in_all_channels():
    hiding = MaskingScheme(IMAGE, Pretrain(mask=0.5, patch=4))
    image = torch.rand(20, 2, 9, 8) + 1
    left, target = hiding.hide({"image": image}, generator())
    hidden = target[:, 1].view(20, 2, 9, 8).bool()
    assert torch.equal(hidden[:, 0], hidden[:, 1])
    assert torch.equal(hidden[:, :, 0, 0], hidden[:, :, 3, 3])
    assert not left["image"][hidden].any()
    assert torch.equal(left["image"][~hidden], image[~hidden])
    assert float(hiding.loss(image.flatten(1), target)) == 0


@pytest.mark.parametrize(("sizes", "net"), [(TABLE, "mlp"), (TABLE, "tabm"), (TABLE, "transformer"), (IMAGE, "cnn")])
def test_ready_nets_give_all_parts_back(sizes, net, tmp_path):
    made = reconstructor(build_net(Model(net=net), sizes, tmp_path), sizes, net)
    inputs = {name: torch.zeros(2, *shape) for name, shape in sizes.inputs.items()}
    if "categorical" in inputs:
        inputs["categorical"] = inputs["categorical"].long()
    width = 3 + 4 + 5 if sizes is TABLE else 2 * 9 * 8
    assert made(**inputs).shape == (2, width)


def test_a_net_without_a_trunk_is_told_what_it_needs(tmp_path):
    (tmp_path / "own.py").write_text(
        "import torch\n\n\ndef net(num_inputs, num_outputs):\n    return torch.nn.Linear(num_inputs, num_outputs)\n"
    )
    net = build_net(Model(net="./own.py:net"), TABLE, tmp_path)
    with pytest.raises(UsageError, match="features"):
        reconstructor(net, TABLE, "./own.py:net")


def test_the_loss_of_pretraining_falls(make_job):
    heard = []
    arguments = {"width": 8, "hidden": 32, "dropout": 0.0}
    job = make_job("image", "multiclass", arguments=arguments, pretrain={"epochs": 8, "lr": 0.01, "patch": 2}, epochs=1)
    run_job(job, lambda epoch: heard.append(epoch.values) or True)
    losses = [values["val_pretrain_loss"] for values in heard if "val_pretrain_loss" in values]
    assert len(losses) == 8
    assert losses[-1] < 0.9 * losses[0]

import contextlib

import pytest
import torch
from torch import nn

from models.distributed import precision
from models.distributed.precision import (
    LossScaler,
    autocast,
    check_precision,
    precision_for,
    set_products,
    sharding_policy,
)
from models.errors import UsageError
from models.project_spec.blocks import Train

CPU = torch.device("cpu")


def test_what_the_device_cannot_do_is_refused_with_its_reason():
    with pytest.raises(UsageError, match=r"train.precision: got fp16 on a CPU.*take bf16"):
        check_precision(Train(precision="fp16"), CPU)
    check_precision(Train(precision="bf16"), CPU)
    check_precision(Train(precision="fp16"), torch.device("cuda"))


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, "bf16"), (False, "fp16")])
def test_auto_is_bf16_where_the_gpu_computes_it(monkeypatch, has_bf16, expected):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla")
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    assert precision_for(torch.device("cuda"))[0] == expected
    assert precision_for(CPU) == ("fp32", "on a CPU")


@pytest.mark.parametrize(
    ("precision", "products", "convolutions"), [("fp32", "high", True), ("fp32-exact", "highest", False)]
)
def test_only_exact_fp32_has_no_tf32(monkeypatch, precision, products, convolutions):
    before = torch.get_float32_matmul_precision()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)  # restored at the end
    try:
        set_products(precision, torch.device("cuda"))
        assert torch.get_float32_matmul_precision() == products
        assert torch.backends.cudnn.allow_tf32 is convolutions
        torch.set_float32_matmul_precision(before)
        set_products("fp32", CPU)
        assert torch.get_float32_matmul_precision() == before
    finally:
        torch.set_float32_matmul_precision(before)


def test_products_are_in_the_asked_type_and_sums_of_gradients_in_fp32():
    layer, inputs = nn.Linear(3, 3), torch.randn(2, 3)
    with autocast(Train(precision="bf16"), CPU):
        assert layer(inputs).dtype == torch.bfloat16
    with autocast(Train(), CPU):
        assert layer(inputs).dtype == torch.float32
    assert sharding_policy(Train(precision="bf16"), CPU).param_dtype is None
    policy = sharding_policy(Train(precision="bf16"), torch.device("cuda"))
    assert (policy.param_dtype, policy.reduce_dtype) == (torch.bfloat16, torch.float32)


def test_an_overflow_is_skipped_and_halves_the_scale(monkeypatch):
    monkeypatch.setattr(precision, "GROWTH_STEPS", 2)
    scaler, first = LossScaler(), precision.FIRST_SCALE
    broken = [torch.tensor([float("inf")])]
    assert not scaler.unscale(broken, torch.tensor(float("inf")))
    assert scaler.scale == first / 2
    for _ in range(2):
        gradients = [torch.tensor([3.0]) * scaler.scale]
        assert scaler.unscale(gradients, torch.tensor(3.0 * scaler.scale))
        assert gradients[0].item() == 3.0
    assert scaler.scale == first


def test_a_scaler_goes_on_from_its_state():
    scaler, other = LossScaler(), LossScaler()
    scaler.unscale([torch.ones(1)], torch.tensor(float("nan")))
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict() != LossScaler().state_dict()

"""The loss in chunks: the same values and gradients, and less memory between the passes."""

import pytest
import torch
import torch.nn.functional as F

from models.training.optimisation import chunked_loss
from models.training.optimisation.chunked_loss import MANY_CLASSES, chunked_cross_entropy
from models.training.optimisation.losses import _cross_entropy


def plain(logits: torch.Tensor, target: torch.Tensor, smoothing: float) -> torch.Tensor:
    return F.cross_entropy(logits.float(), target, label_smoothing=smoothing, reduction="none")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients_are_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, smoothing: float
) -> None:
    monkeypatch.setitem(chunked_loss._CHUNK_BYTES, "cpu", 4 * 50 * 7)  # chunks of 7 rows; the last has 2
    generator = torch.Generator().manual_seed(0)
    values = 5 * torch.randn(30, 50, generator=generator)
    target, share = torch.randint(0, 50, (30,), generator=generator), torch.rand(30, generator=generator)
    found = []
    for loss in (chunked_cross_entropy, plain):
        logits = values.to(dtype).requires_grad_()
        losses = loss(logits, target, smoothing)
        assert losses.dtype == torch.float32
        (losses * share).sum().backward()
        found.append((losses, logits.grad))
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


def test_gradients_are_exact_in_float64() -> None:
    logits = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 5, 2, 2])
    chunked_cross_entropy(logits, target).sum().backward()
    expected = logits.detach().softmax(dim=1) - F.one_hot(target, 6)
    torch.testing.assert_close(logits.grad, expected, rtol=1e-6, atol=1e-6)


def test_no_float32_copy_of_half_precision_logits_waits_for_the_backward_pass() -> None:
    """Bytes that the loss keeps for each logit besides the logits themselves; those of rows are few."""
    rows, classes = 64, 4096
    target = torch.zeros(rows, dtype=torch.int64)
    found = []
    for loss in (chunked_cross_entropy, plain):
        logits = torch.zeros(rows, classes, dtype=torch.bfloat16, requires_grad=True)
        sizes: dict[int, int] = {}

        def pack(tensor: torch.Tensor, sizes: dict[int, int] = sizes) -> torch.Tensor:
            sizes[tensor.data_ptr()] = tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            losses = loss(logits, target, 0.0)
        losses.sum().backward()
        sizes.pop(logits.data_ptr(), None)
        found.append(sum(sizes.values()) / logits.numel())
    assert found[0] < 0.01
    assert found[1] > 3.9


def test_only_many_classes_without_weights_are_chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.training.optimisation.losses.chunked_cross_entropy", lambda *_: "in chunks")
    target = torch.zeros(1, dtype=torch.int64)
    assert _cross_entropy(torch.zeros(1, MANY_CLASSES), target, 0.0, None) == "in chunks"
    assert _cross_entropy(torch.zeros(1, MANY_CLASSES), target, 0.0, torch.ones(MANY_CLASSES)).shape == (1,)
    assert _cross_entropy(torch.zeros(1, MANY_CLASSES - 1), target, 0.0, None).shape == (1,)

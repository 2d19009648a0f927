import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from models.errors import UserCodeError
from models.nets.sizes import Sizes
from models.planner.profile import LiveBytes, Profiler
from models.project_spec.blocks import Model
from tests.unit.models.planner.conftest import IMAGE, SERIES, TABLE

MB = 1_000_000
TRANSFORMER = {"width": 64, "layers": 3, "heads": 4}


def test_the_figures_of_a_transformer_are_those_of_the_formulas(make_profiler):
    """Per token and layer 8 d + 2 m + h numbers are kept, with m = 4 d and no dropout."""
    batch, tokens, width = 16, 33, TRANSFORMER["width"]
    profiler = make_profiler("transformer", SERIES, dropout=0.0, **TRANSFORMER)
    found = profiler.exactly(batch)
    expected = 4 * batch * tokens * (8 * width + 2 * 4 * width + TRANSFORMER["heads"])
    assert found.block == pytest.approx(expected, rel=0.02)
    assert found.hidden == 4 * batch * tokens * width
    weights = profiler.weights()
    assert weights.num_blocks == 3
    assert weights.block == 12 * width**2 + 13 * width
    assert profiler.flops() == pytest.approx(6 * weights.block * 3 * tokens, rel=0.2)


def test_between_two_traces_lies_what_a_trace_would_find(make_profiler):
    profiler = make_profiler("transformer", SERIES, **TRANSFORMER)
    for batch in (16, 600):
        line, trace = profiler.activations(batch), profiler.exactly(batch)
        for name in ("saved", "apart", "hidden", "inputs"):
            assert getattr(line, name) == pytest.approx(getattr(trace, name), rel=0.02), (batch, name)


def test_ranks_that_share_layers_hold_their_part(make_profiler):
    profiler = make_profiler("transformer", SERIES, **TRANSFORMER)
    whole, half = profiler.weights(), profiler.weights(2)
    assert profiler.tensor_parts == 4
    assert half.block == pytest.approx(whole.block / 2, rel=0.02)
    assert half.outside == whole.outside
    assert 0.5 < profiler.exactly(8, 2).block / profiler.exactly(8).block < 0.8


def test_layers_whose_outputs_are_joined_share_their_weights_alone(make_profiler):
    profiler = make_profiler("mlp", TABLE, hidden=256, layers=4)
    assert profiler.weights(4).block == pytest.approx(profiler.weights().block / 4, rel=0.1)
    assert profiler.exactly(8, 4) == profiler.exactly(8)


@pytest.mark.parametrize(("kind", "most"), [("full", 0.35), ("selective", 0.95)])
def test_recomputing_keeps_less(make_profiler, kind, most):
    profiler = make_profiler("transformer", SERIES, **TRANSFORMER)
    assert profiler.exactly(16, recompute=kind).saved < most * profiler.exactly(16).saved


def test_half_precision_and_flash_attention_keep_less(make_profiler):
    long = Sizes("series", "regression", 8, window=(256, 8))
    plain = make_profiler("transformer", long, **TRANSFORMER).exactly(4).saved
    flash = make_profiler("transformer", long, flash=True, **TRANSFORMER).exactly(4).saved
    half = make_profiler("transformer", long, "bf16", flash=True, **TRANSFORMER).exactly(4).saved
    assert flash < 0.7 * plain, "the matrix of attention is not kept"
    assert half < 0.8 * flash


@pytest.mark.parametrize(("precision", "most"), [("fp32", 2.5), ("bf16", 1.5)])
def test_of_many_classes_no_log_probabilities_are_kept(make_profiler, precision, most):
    """The engine's loss goes over them in chunks, so the logits and their gradients are all there is."""
    classes, batch = 8192, 1024
    sizes = Sizes("table", "multiclass", 16, num_outputs=classes)
    found = make_profiler("mlp", sizes, precision, hidden=16, layers=1).exactly(batch)
    assert found.peak < most * 4 * batch * classes


def test_a_net_of_seven_billion_parameters_needs_no_memory(make_profiler):
    profiler = make_profiler("transformer", SERIES, width=8192, layers=8, heads=64)
    assert profiler.weights().total > 6e9
    assert profiler.exactly(64).saved > 1e9


OWN = """
import torch
class Net(torch.nn.Module):
    def __init__(self, num_numeric, num_outputs):
        super().__init__()
        self.layer = torch.nn.Linear(num_numeric, num_outputs)
    def forward(self, numeric):
        return self.layer(numeric) {more}
"""


def test_an_own_net_without_blocks_is_one_unit(tmp_path):
    (tmp_path / "net.py").write_text(OWN.format(more=""))
    sizes = Sizes("table", "binary", 8)
    profiler = Profiler(Model(net="./net.py:Net"), sizes, tmp_path)
    assert (profiler.num_blocks, profiler.tensor_parts, profiler.weights().outside) == (0, 0, 9)


def test_a_net_that_reads_values_cannot_be_traced_and_says_so(tmp_path):
    (tmp_path / "net.py").write_text(OWN.format(more="* float(numeric.mean())"))
    with pytest.raises(UserCodeError, match=r"net\.py:Net: cannot be run on shapes alone"):
        Profiler(Model(net="./net.py:Net"), Sizes("table", "binary", 8), tmp_path)


def test_images_too(make_profiler):
    profiler = make_profiler("cnn", IMAGE)
    assert profiler.num_blocks == 0
    assert profiler.exactly(8).saved > 8 * 28 * 28 * 4
    assert isinstance(profiler.flops(), float)
    assert not any(isinstance(p, nn.Parameter) and not p.is_meta for p in profiler._net.parameters())
    assert torch.get_default_device() == torch.device("cpu")


def test_what_lives_is_counted_and_what_died_is_not():
    known = torch.ones(MB // 4)
    with LiveBytes([known]) as live:
        first = known * 2
        view = first[10:]
        assert live.now == MB
        second = first + view.sum()
        del first, view
        assert live.now == MB
        assert live.peak >= 2 * MB
        del second
    assert live.now == 0


def test_fake_tensors_count_as_if_they_were_there():
    with FakeTensorMode():
        known = torch.ones(MB)
        with LiveBytes([known]) as live:
            kept = [known.expand(10_000, MB) + i for i in range(10)]
    assert live.now == 10 * 10_000 * 4 * MB
    assert len(kept) == 10


def test_gradients_are_told_apart():
    layer = nn.Linear(500, 500, bias=False)
    inputs = torch.ones(1, 500)
    with LiveBytes([layer.weight, inputs]) as live:
        layer.weight.register_post_accumulate_grad_hook(lambda weight: live.is_gradient(weight.grad))
        layer(inputs).sum().backward()
    assert live.gradients == MB
    assert live.peak >= MB
    assert live.now < MB / 100

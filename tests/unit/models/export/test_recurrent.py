import numpy as np
import pytest
import torch
from torch import nn

from models.export.net_graph import net_part
from models.export.recurrent import with_whole_cells
from tests.finished_jobs import run_stretch, series_preparation

CELLS = [
    nn.GRU(2, 3, batch_first=True),
    nn.GRU(2, 3, num_layers=2, bidirectional=True, dropout=0.4),
    nn.LSTM(2, 3, num_layers=2, bias=False, batch_first=True),
    nn.LSTM(2, 3, bidirectional=True),
]


class Chain(nn.Module):
    """A time-first GRU in both directions hands its states and its last state to an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(2, 3, num_layers=2, bidirectional=True, dropout=0.5)
        self.inner = nn.ModuleDict({"lstm": nn.LSTM(6, 3, num_layers=4, batch_first=True)})
        self.head = nn.Linear(6, 1)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """(batch, 1)."""
        states, last = self.gru(series.transpose(0, 1))
        out, (hidden, _) = self.inner["lstm"](states.transpose(0, 1), (last, last.tanh()))
        output: torch.Tensor = self.head(torch.cat([out[:, -1], hidden[1]], dim=1))
        return output


@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("given", [False, True])
def test_a_whole_cell_gives_what_the_cell_gives(cell: nn.Module, given: bool) -> None:
    cell.eval()
    series = torch.randn(4, 5, 2)
    (_, last) = cell(series)
    state = (last,) if given else ()
    whole = with_whole_cells(nn.Sequential(cell))[0]
    assert type(whole) is not type(cell)
    with torch.inference_mode():
        torch.testing.assert_close(whole(series, *state), cell(series, *state))


def test_a_graph_of_whole_cells_is_in_parity() -> None:
    torch.manual_seed(0)
    net = Chain().eval()
    stretch, output = net_part(net, series_preparation())
    series = torch.randn(7, 5, 2)
    (got,) = run_stretch(stretch, {"core/series": series.numpy()}, [output])
    with torch.inference_mode():
        np.testing.assert_allclose(got, net(series).numpy(), atol=1e-5)
    operators = [node.op_type for node in stretch.nodes]
    assert (operators.count("GRU"), operators.count("LSTM")) == (2, 4)
    assert type(net.gru) is nn.GRU, "the net itself is left as it was"


def test_other_nets_are_left_alone() -> None:
    linear = nn.Linear(2, 1)
    projected = nn.LSTM(2, 3, proj_size=1)
    assert with_whole_cells(linear) is linear
    assert with_whole_cells(projected) is projected

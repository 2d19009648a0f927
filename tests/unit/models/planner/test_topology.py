"""The links between GPUs: read from a matrix as nvidia-smi prints it, and the slow ones named."""

import pytest

from models.planner.topology import fast_groups, read_links, slowest_link

# The form of driver 550: a coloured header, columns of network cards and affinities, and the legend. Made by hand.
TWO_SIDES = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tPIX\tSYS\tSYS\tNODE\t0-31\t0\t\tN/A
GPU1\tPIX\t X \tSYS\tSYS\tNODE\t0-31\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tPIX\tSYS\t32-63\t1\t\tN/A
GPU3\tSYS\tSYS\tPIX\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tNODE\tNODE\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
"""


def test_the_matrix_of_two_sides() -> None:
    links = read_links(TWO_SIDES)
    assert links == {(0, 1): "PIX", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS", (2, 3): "PIX"}
    assert fast_groups(links) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(("ranks", "link"), [(1, None), (2, None), (3, (0, 2, "SYS")), (4, (0, 2, "SYS"))])
def test_ranks_beyond_one_side_cross_the_slow_link(ranks: int, link: tuple[int, int, str] | None) -> None:
    assert slowest_link(read_links(TWO_SIDES), ranks) == link


def test_nvlink_is_fast() -> None:
    links = read_links("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-63\nGPU1\tNV18\t X \t0-63\n")
    assert links == {(0, 1): "NV18"}
    assert fast_groups(links) == [[0, 1]]
    assert slowest_link(links, 2) is None


@pytest.mark.parametrize("text", ["", "No devices were found\n", "\tGPU0\tCPU Affinity\nGPU0\t X \t0-15\n"])
def test_without_two_gpus_there_are_no_links(text: str) -> None:
    assert read_links(text) == {}
    assert fast_groups(read_links(text)) == []

import numpy as np

from models.inputs.graph_builder import GraphBuilder


def test_names_start_with_the_prefix_so_that_stretches_join_without_clashes() -> None:
    stretch = GraphBuilder("head/")
    scale = stretch.constant("scale", np.array(2.0))
    output = stretch.node("Mul", ["x", scale], "scaled")
    assert (scale, output) == ("head/scale", "head/scaled")
    assert stretch.nodes[0].name == "head/scaled"


def test_an_output_can_have_the_name_that_the_next_stretch_reads() -> None:
    stretch = GraphBuilder("prepare/")
    assert stretch.node("Neg", ["x"], "negative", output="core/x") == "core/x"
    assert list(stretch.nodes[0].output) == ["core/x"]

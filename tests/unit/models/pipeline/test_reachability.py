"""Nothing that a root or a young node reaches is garbage, and everything else that is old is."""

from hypothesis import given
from hypothesis import strategies as st

from models.pipeline.reachability import Node, needed

BEFORE = 100.0


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Node]:
    """Loops, versions and records that name each other at will, also in circles, and leaves without a node."""
    names = [f"{kind}:{number}" for kind in ("version", "loop", "record") for number in range(draw(st.integers(0, 5)))]
    leaves = [f"data:{number}" for number in range(4)]
    roots = st.sampled_from(["", "", "was champion", "the last loop"])
    return {
        name: Node(
            draw(st.floats(0, 200, allow_nan=False)),
            tuple(draw(st.lists(st.sampled_from(names + leaves), max_size=4))),
            draw(roots),
        )
        for name in names
    }


@given(graphs())
def test_exactly_what_is_reached_is_needed(nodes: dict[str, Node]) -> None:
    reached = {name for name, node in nodes.items() if node.root or node.used >= BEFORE}
    while more := {other for name in reached if name in nodes for other in nodes[name].names} - reached:
        reached |= more
    assert set(needed(nodes, BEFORE)) == reached


@given(graphs())
def test_to_remove_garbage_makes_no_more_garbage(nodes: dict[str, Node]) -> None:
    reasons = needed(nodes, BEFORE)
    left = {name: node for name, node in nodes.items() if name in reasons}
    assert needed(left, BEFORE) == reasons


def test_a_root_is_the_reason_even_of_what_is_young() -> None:
    nodes = {"version:1": Node(0, ("loop:a",), "was champion"), "loop:a": Node(150)}
    assert needed(nodes, BEFORE) == {"version:1": "was champion", "loop:a": "was champion"}

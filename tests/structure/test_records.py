"""A function that takes a whole record and reads at most two of its fields is counted, unless it needs the record."""

import ast

import pytest

from tests.structure.records import takers

RECORD = """
class Loop:
    spec: Spec
    state: Path
    id: str

    @property
    def name(self) -> str: ...

    def carry_out(self, act): ...
"""


def counted(snippet: str) -> list[tuple[str, str]]:
    sources = {"tasks/loop/loop.py": RECORD, "tasks/steps/card.py": snippet}
    found = takers({path: ast.parse(source) for path, source in sources.items()})
    return [(taker.name, ", ".join(sorted(taker.fields))) for taker in found]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ("return loop.spec.data, loop.spec.name", "spec"),
        ("return loop.name", "name"),
        ("return lambda: (loop.id, loop.state)", "id, state"),
        ("return loop is None", ""),
    ],
)
def test_at_most_two_fields_are_counted(body: str, fields: str) -> None:
    assert counted(f"def card(loop: Loop):\n    {body}\n") == [("card", fields)]
    assert counted(f"def card(number: int, *, loop: Loop | None):\n    {body}\n") == [("card", fields)]


@pytest.mark.parametrize(
    "body",
    [
        "return loop.spec, loop.state, loop.id",
        "loop.carry_out(act)",
        "return loop",
        "return [loop]",
        "return library(loop)",
        "return replace(loop, id=loop.id)",
    ],
)
def test_a_record_that_is_needed_whole_is_not(body: str) -> None:
    assert counted(f"def card(loop: Loop):\n    {body}\n") == []


def test_a_function_reads_what_those_read_to_which_it_passes_its_record_on() -> None:
    leaf = "def links(number, loop: Loop):\n    return loop.id\n"
    assert counted(f"{leaf}def card(loop: Loop):\n    return links(1, loop), loop.state\n") == [
        ("links", "id"),
        ("card", "id, state"),
    ]
    whole = "def links(loop: Loop):\n    return loop\n"
    assert counted(f"{whole}def card(loop: Loop):\n    return links(loop=loop)\n") == []


def test_functions_of_a_table_take_all_the_same() -> None:
    assert counted("def card(loop: Loop):\n    return loop.id\nCARDS = {'a': card}\n") == []

"""A name that says nothing is counted wherever it is bound, and no other."""

import ast

import pytest

from tests.structure.words import StandIn, is_stand_in, main, stand_ins

LINES = """
def one(made: int, rows: list[int], *, wanted=None, **others):
    for each in rows:
        self.known = each
    with open(path) as held, call(at=3) as file:
        done, left_over = file
    total = [x for x in rows] + [thing for thing in rows]
    x = max(rows, key=lambda y: y)
    try:
        each_row = 1
    except ValueError as why:
        print(why)
    match rows:
        case [first, *more]:
            pass

class Entry:
    at: float
"""


def test_each_form_of_a_binding_is_counted_once() -> None:
    names, total = stand_ins({"models/a.py": ast.parse(LINES)})
    assert sorted(name.name for name in names) == [
        "at", "done", "each", "each_row", "held", "known", "made", "more", "one", "others", "thing", "wanted", "why",
        "x", "y",
    ]  # fmt: skip
    assert total == 22
    assert str(StandIn("models/a.py", 3, "each")) == "models/a.py:3: each"


@pytest.mark.parametrize("name", ["each", "_known", "made_", "each_row", "last_item", "k"])
def test_a_name_that_says_nothing(name: str) -> None:
    assert is_stand_in(name)


@pytest.mark.parametrize("name", ["row", "by_name", "one_line", "own_code", "at_ms", "known_future", "_"])
def test_a_name_that_says_something(name: str) -> None:
    assert not is_stand_in(name)


def test_one_letter_is_enough_in_a_comprehension() -> None:
    assert is_stand_in("x")
    assert not is_stand_in("x", is_short_lived=True)


def test_the_script_prints_the_share(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("flows", "tasks", "models"):
        (tmp_path / folder).mkdir()
    (tmp_path / "models" / "a.py").write_text("made = 1\nrows = 2\n")
    main(["-v", str(tmp_path)])
    assert capsys.readouterr().out.splitlines() == ["models/a.py:1: made", "    1 made", "1 of 2 bindings: 50.00%"]

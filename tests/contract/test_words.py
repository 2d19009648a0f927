"""Names say what a thing is; the stand-ins that are left may only become fewer.

`python -m tests.structure.words -v` prints them. Whoever takes some out lowers the ceiling.
"""

import ast

from tests.structure.words import stand_ins

CEILING = 0.007
"""Of all names that the product binds."""


def test_names_that_say_nothing_stay_below_their_ceiling(trees_by_path: dict[str, ast.Module]) -> None:
    names, total = stand_ins(trees_by_path)
    assert len(names) / total <= CEILING, "python -m tests.structure.words -v prints them"

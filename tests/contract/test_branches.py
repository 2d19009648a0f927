"""A stage asks a table what it does with a kind; the branches that are left may only become fewer.

`python -m tests.structure.branches -v` prints them. Whoever takes one out lowers the ceiling.
"""

import ast
from pathlib import Path
from typing import get_args

import pytest

from models.kinds.task import TASK_NAMES
from models.nets.catalogue import NETS
from models.project_spec.blocks import Kind
from tests.structure.branches import BESIDE, GROUPS, branches, count
from tests.structure.vocabulary import DATA_KINDS, FAMILIES, TASKS

CEILINGS = {"joint": 246, "in words": 101, "family": 17, "names": 46}


@pytest.fixture(scope="module")
def numbers(trees_by_path: dict[str, ast.Module]) -> dict[str, int]:
    return count(branches(trees_by_path))


@pytest.mark.parametrize("name", CEILINGS)
def test_branches_on_kinds_stay_below_their_ceiling(numbers: dict[str, int], name: str) -> None:
    assert numbers[name] <= CEILINGS[name], "python -m tests.structure.branches -v prints them"


def test_the_script_counts_every_kind_of_the_product() -> None:
    assert set(TASK_NAMES) == TASKS
    assert set(get_args(Kind)) == DATA_KINDS
    assert set(NETS) - FAMILIES == set()


def test_the_page_says_of_each_group_why_it_stays(root: Path) -> None:
    page = (root / "docs" / "architecture" / "branches.md").read_text()
    rows = [line.split("|")[1].strip(" `") for line in page.splitlines() if line.startswith("| `")]
    assert rows == [group for group in GROUPS if group not in BESIDE]

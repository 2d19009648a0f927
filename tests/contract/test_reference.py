"""The pages of the site that follow from the code are fresh."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.loaded import load

SCRIPT = Path(__file__).parents[2] / "infra" / "write_reference.py"
PAGES = (
    "reference/commands.md",
    "reference/spec.md",
    "reference/events.md",
    "reference/metrics.md",
    "reference/environment.md",
    "reference/http.md",
    "reference/workspace.md",
    "architecture/layers.md",
    "decisions/index.md",
)


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return load(SCRIPT)


def test_the_script_writes_these_pages(reference: ModuleType) -> None:
    assert tuple(reference.PAGES) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_says(root: Path, reference: ModuleType, name: str) -> None:
    assert (root / "docs" / name).read_text() == reference.PAGES[name](), "run `make reference`"


def test_every_environment_variable_of_the_code_is_described(reference: ModuleType) -> None:
    assert set(reference.VARIABLES) == reference.variables_in_code() - {"LOOPLINE_NOTIFY"}


def test_each_command_and_metric_has_its_place(reference: ModuleType) -> None:
    from flows.cli import COMMANDS
    from models.metrics.metrics import METRICS

    assert all(f"\n## {name}\n" in reference.commands() for name in COMMANDS)
    assert all(f"| `{name}` |" in reference.metrics() for name in METRICS)


def test_the_drawing_of_the_layers_follows_the_contracts(reference: ModuleType) -> None:
    layers = reference.layers()
    assert "tasks --> models" in layers
    assert "mlflow | prefect | tools" in layers

"""A family that cannot hold a table is refused by its rows and columns."""

from pathlib import Path
from typing import Any

import pytest

from models.errors import UsageError
from models.project_spec.blocks import Spec
from models.training.costs import table_memory
from models.training.costs.table_memory import FitSize, check_fits, fit_bytes, fitted_rows

GIGABYTE = 1e9
LARGE = FitSize(rows=40_000_000, numbers=16, categories=[10] * 4)
FOREST = "sklearn.ensemble:ExtraTreesClassifier"
LINEAR = "sklearn.linear_model:LogisticRegression"


def spec_of(net: str = "auto", **data: Any) -> Spec:
    blocks = {"data": {"source": "rows.parquet", "target": "y", **data}, "model": {"net": net}}
    return Spec.model_validate({"name": "large", **blocks})


@pytest.fixture
def four_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_memory, "usable_memory", lambda: 4 * GIGABYTE)


@pytest.mark.parametrize(
    ("net", "rows", "numbers", "categories", "measured"),
    [("trees", 850_000, 20, 4, 272), ("linear", 850_000, 20, 4, 182), ("trees", 3_401_240, 20, 4, 1345)],
)
def test_the_foretold_memory_is_what_was_measured(
    net: str, rows: int, numbers: int, categories: int, measured: float
) -> None:
    foretold = fit_bytes(net, FitSize(rows, numbers, [3] * categories), Path(), is_refit=True) / 2**20
    assert foretold == pytest.approx(measured, rel=0.3)


def test_one_hot_categories_count_by_their_values() -> None:
    few, many = FitSize(1000, 2, [3]), FitSize(1000, 2, [1000])
    assert fit_bytes(FOREST, few, Path(), is_refit=True) == fit_bytes(FOREST, many, Path(), is_refit=True)
    assert fit_bytes(LINEAR, many, Path(), is_refit=True) > 50 * fit_bytes(LINEAR, few, Path(), is_refit=True)


def test_a_net_that_reads_batches_needs_no_whole_table() -> None:
    assert fit_bytes("mlp", LARGE, Path(), is_refit=True) == 0


@pytest.mark.usefixtures("four_gigabytes")
def test_the_families_that_fit_are_named() -> None:
    check_fits(spec_of(), FitSize(1_000_000, 16, [10] * 4), Path())
    with pytest.raises(UsageError, match=r"search\.families: trees needs about .* or search\.families: \[mlp\]"):
        check_fits(spec_of(), LARGE, Path())
    check_fits(spec_of("mlp"), LARGE, Path())


@pytest.mark.usefixtures("four_gigabytes")
def test_the_sample_that_is_named_fits() -> None:
    with pytest.raises(UsageError, match=r"fewer rows \(train\.rows\), about") as refused:
        check_fits(spec_of("trees"), LARGE, Path())
    rows = int(str(refused.value).partition("(train.rows), about ")[2].partition(" ")[0].replace(",", ""))
    check_fits(spec_of("trees"), LARGE._replace(rows=rows), Path())
    with pytest.raises(UsageError):
        check_fits(spec_of("trees"), LARGE._replace(rows=rows + rows // 100), Path())


def test_a_fit_holds_the_rows_that_it_learns_from_and_those_of_validation() -> None:
    assert fitted_rows(500, 4000, 300) == 800
    assert fitted_rows(None, 4000, 300) == 4300
    assert fitted_rows(500, 400, 300) == 700

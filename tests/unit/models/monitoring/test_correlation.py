import numpy as np

from models.monitoring.correlation import changes
from models.monitoring.tally import tally
from tests.unit.models.monitoring.conftest import logged, reference, rows

NAMES = ["wind", "gust"]


def gram(table) -> np.ndarray:
    found = tally(logged(table), reference()).gram
    assert found is not None
    return found


def test_a_broken_correlation_with_unchanged_marginals_is_seen() -> None:
    table = rows(1000, seed=5)
    shuffled = np.random.default_rng(0).permutation(table.column("gust").to_numpy())
    (found,) = changes(np.array(reference().gram), gram(table.set_column(1, "gust", [shuffled])), NAMES, 0.01)
    assert found.changed
    assert found.reference > 0.6
    assert abs(found.now) < 0.1


def test_columns_that_hang_together_as_before_are_quiet() -> None:
    changed = [changes(np.array(reference().gram), gram(rows(1000, seed=seed)), NAMES, 0.01) for seed in range(5, 45)]
    assert sum(pair.changed for found in changed for pair in found) == 0


def test_a_column_without_spread_or_a_handful_of_rows_tell_nothing() -> None:
    table = rows(500)
    assert changes(np.array(reference().gram), gram(table.set_column(0, "wind", [np.zeros(500)])), NAMES, 0.01) == []
    assert changes(np.array(reference().gram), gram(rows(5)), NAMES, 0.01) == []

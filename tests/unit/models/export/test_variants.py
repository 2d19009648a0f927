import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import DataError
from models.export.variants import FEWEST_ROWS, VariantMeasurement, allowed_loss, are_same, choose, loss_of, refusal
from models.metrics.metrics import METRICS


def measured(name: str, size_bytes: int | None = 10, refused: str = "", **more: float) -> VariantMeasurement:
    costs = {"latency_ms": 1.0, "value": 0.9, "loss": 0.0, "most_lost": 0.0, **more}
    return VariantMeasurement(name=name, size_bytes=size_bytes, refused=refused, **costs)


def served(table: list[VariantMeasurement]) -> list[str]:
    return [each.name for each in choose(table) if each.served]


def test_the_smallest_that_may_be_served_is() -> None:
    assert served([measured("fp32", 30), measured("fp16", 20), measured("int8_static", 10, refused="no")]) == ["fp16"]


def test_of_equally_large_ones_the_first_is_served() -> None:
    assert served([measured("fp32", 30), measured("fp16", 30)]) == ["fp32"]


def test_the_export_itself_is_served_if_none_may_be() -> None:
    assert served([measured("fp32", 30, refused="slow"), measured("fp16", None, refused="no")]) == ["fp32"]


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.floats(0.1, 9)), min_size=1, max_size=6))
def test_one_is_served_and_how_long_it_took_has_no_say(found: list[tuple[int, bool, float]]) -> None:
    table = [measured(f"v{at}", size, "no" * bad, latency_ms=took) for at, (size, bad, took) in enumerate(found)]
    slower = [each.model_copy(update={"latency_ms": 1.0}) for each in table]
    assert len(served(table)) == 1
    assert served(table) == served(slower)


@pytest.mark.parametrize(
    ("found", "same", "limits", "words"),
    [
        (measured("fp16"), True, (0.0, None), ""),
        (measured("fp16"), False, (0.0, None), "predictions are not those of fp32"),
        (measured("fp16", most_lost=0.01), False, (0.01, None), ""),
        (measured("fp16", most_lost=0.02), False, (0.01, None), "may lose 0.02, 0.01 is allowed"),
        (measured("fp16", times_fp32=1.2), True, (0.01, None), "takes 1.20 times as long as fp32"),
        (measured("fp16", times_fp32=1.04), True, (0.01, None), ""),
        (measured("fp16", latency_ms=3.0), True, (0.0, 2.0), "takes 3 ms, serve.max_latency_ms is 2"),
        (measured("fp16", latency_ms=2.0), True, (0.0, 2.0), ""),
        (measured("fp16", refused="cannot be made"), True, (1.0, None), "cannot be made"),
    ],
)
def test_what_may_not_be_served(
    found: VariantMeasurement, same: bool, limits: tuple[float, float | None], words: str
) -> None:
    why = refusal(found, same, *limits)
    assert (words in why) if words else (why == "")


def made_up(num: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A target, the chances of a model, and those of a variant that adds noise to their logits."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 1.5, num)
    target = (random.random(num) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    return target, 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(-logits - random.normal(0, noise, num)))


def test_without_a_limit_half_of_the_standard_error_may_be_lost_and_on_few_rows_nothing() -> None:
    target, before, _ = made_up(4000, 0.0)
    error = np.sqrt(before.mean() * (1 - before.mean()) / 4000)
    allowed = allowed_loss(METRICS["accuracy"], target, before, None, 0)
    assert allowed == pytest.approx(error / 2, rel=0.4)
    assert allowed_loss(METRICS["accuracy"], target, before, 0.3, 0) == 0.3
    few = slice(FEWEST_ROWS - 1)
    assert allowed_loss(METRICS["accuracy"], target[few], before[few], None, 0) == 0.0


@pytest.mark.parametrize("repeats", [40, pytest.param(400, marks=pytest.mark.soak)])
@pytest.mark.parametrize("metric", ["roc_auc", "log_loss"])
def test_by_default_a_variant_with_small_errors_passes_and_one_that_loses_too_much_does_in_at_most_5_of_100(
    metric: str, repeats: int
) -> None:
    passed = {0.02: 0, 1.0: 0}
    for noise in passed:
        for seed in range(repeats):
            target, before, after = made_up(1000, noise, seed)
            allowed = allowed_loss(METRICS[metric], target, before, None, seed)
            passed[noise] += loss_of(METRICS[metric], target, before, after, seed)[1] <= allowed
    assert passed[0.02] >= 0.95 * repeats
    assert passed[1.0] <= 0.05 * repeats


def test_the_same_predictions_lose_nothing() -> None:
    target, chances = np.array([0, 1, 1, 0]), np.array([0.1, 0.8, 0.7, 0.4])
    assert loss_of(METRICS["log_loss"], target, chances, chances + 1e-9, 0) == (0.0, 0.0)


@pytest.mark.parametrize("name", ["accuracy", "log_loss"])
def test_a_loss_is_positive_whichever_way_the_metric_is_better(name: str) -> None:
    rng = np.random.default_rng(0)
    target = rng.integers(0, 2, 500)
    before = np.clip(0.5 + (target - 0.5) * 0.8 + rng.normal(0, 0.2, 500), 0.01, 0.99)
    after = np.clip(before + rng.normal(0, 0.3, 500), 0.01, 0.99)
    loss, most = loss_of(METRICS[name], target, before, after, 0)
    assert 0 < loss < most
    gain, _ = loss_of(METRICS[name], target, after, before, 0)
    assert gain == pytest.approx(-loss)


def test_an_undefined_metric_is_an_error() -> None:
    with pytest.raises(DataError, match="undefined"):
        loss_of(METRICS["roc_auc"], np.zeros(3, np.int64), np.ones(3), np.zeros(3), 0)


def test_predictions_of_another_shape_are_not_the_same() -> None:
    assert not are_same(np.ones(3), np.ones((3, 1)))

import pytest

from models.training.costs.summary import Costs, of_epochs, total

EPOCHS = [
    {"samples_per_s": 100.0, "device_s": 4.0, "data_wait_s": 0.5, "peak_memory_mb": 300, "flops": 8.64e18, "mfu": 0.5},
    {"samples_per_s": 50.0, "device_s": 6.0, "data_wait_s": 0.1, "peak_memory_mb": 400, "flops": 8.64e18, "mfu": 0.25},
]


def test_a_jobs_costs_come_from_its_epochs():
    costs = of_epochs(EPOCHS, "cpu", 1e11)
    assert costs.device_seconds == 10
    assert costs.samples_per_s == pytest.approx(200 / 3)
    assert costs.mfu == pytest.approx(1 / 3)
    assert costs.peak_memory_mb == 400
    assert costs.petaflop_s_days == pytest.approx(0.2)
    assert costs.energy_j is None
    assert costs.tokens_per_s is None


def test_what_is_not_known_is_absent_from_the_figures():
    figures = of_epochs(EPOCHS, "cpu").figures()
    assert "energy_j" not in figures
    assert "peak_flops_per_s" not in figures
    assert figures["petaflop_s_days"] == pytest.approx(0.2)


def test_a_value_that_one_epoch_lacks_is_not_summed_without_it():
    assert of_epochs([*EPOCHS, {"device_s": 1.0}], "cpu").flops is None


def test_a_sum_keeps_what_can_be_added():
    summed = total([of_epochs(EPOCHS, "cpu"), None, of_epochs(EPOCHS[:1], "cpu")])
    assert summed.device_seconds == 14
    assert summed.flops == pytest.approx(3 * 8.64e18)
    assert summed.peak_memory_mb == 400
    assert summed.data_wait_s == pytest.approx(1.1)
    assert summed.samples_per_s is None


def test_a_sum_over_a_part_that_was_not_counted_is_not_known():
    assert total([of_epochs(EPOCHS, "cpu"), Costs(device_seconds=1)]).flops is None
    assert total([]).flops is None

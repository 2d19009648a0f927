import pytest

from models.project_spec.blocks import Train
from models.training.checkpoints.state import Progress
from models.training.optimisation.schedules import is_plateau, learning_rate


def test_the_rate_rises_and_falls_as_asked():
    cosine = [learning_rate(Train(lr=1.0, warmup=0.1), step, 100) for step in range(100)]
    assert cosine[0] == pytest.approx(1 / 11)
    assert cosine[10] == 1.0
    assert cosine[:11] == sorted(cosine[:11])
    assert cosine[10:] == sorted(cosine[10:], reverse=True)
    assert 0 < cosine[-1] < 0.01
    linear = [learning_rate(Train(lr=1.0, warmup=0.0, schedule="linear"), step, 4) for step in range(4)]
    assert linear == [1.0, 0.75, 0.5, 0.25]
    assert learning_rate(Train(lr=0.3, warmup=0.0, schedule="constant"), 3, 4) == 0.3


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("restarts", [1.0, 0.853, 0.5, 0.146, 1.0, 0.853, 0.5, 0.146]),
        ("step", [1.0, 1.0, 1.0, 1.0, 0.25, 0.25, 0.25, 0.25]),
        ("exponential", [0.25 ** (i / 8) for i in range(8)]),
    ],
)
def test_schedules_fall_as_named(schedule, expected):
    train = Train(lr=1.0, warmup=0.0, schedule=schedule, cycles=2, decay=0.25)
    assert [learning_rate(train, step, 8) for step in range(8)] == pytest.approx(expected, abs=1e-3)


def test_one_cycle_rises_and_ends_near_nothing():
    rates = [learning_rate(Train(lr=1.0, schedule="one_cycle"), step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.04)
    assert rates[30] == pytest.approx(1.0)
    assert rates[:31] == sorted(rates[:31])
    assert rates[30:] == sorted(rates[30:], reverse=True)
    assert rates[-1] < 0.001


def test_a_plateau_is_so_many_epochs_after_the_best_or_the_last_drop():
    train = Train(schedule="plateau", plateau_patience=2)
    assert not is_plateau(Progress(epoch=3, improved_epoch=2), train)
    assert is_plateau(Progress(epoch=4, improved_epoch=2), train)
    assert not is_plateau(Progress(epoch=5, improved_epoch=2, last_drop=4), train)
    assert is_plateau(Progress(epoch=6, improved_epoch=2, last_drop=4), train)
    assert not is_plateau(Progress(epoch=9, improved_epoch=2), Train())
    assert learning_rate(Train(lr=1.0, warmup=0.0, schedule="plateau", decay=0.5), 7, 9, drops=2) == 0.25

import pytest
import torch

from models.project_spec.methods import Augment
from models.training.batches.augment import Augmenter, is_on


def changer(**kinds):
    return Augmenter.at(Augment(**kinds), seed=0, epoch=1, step=2, rank=0)


def test_the_same_place_gives_the_same_change_and_another_another():
    image = torch.rand(4, 1, 8, 8)
    kinds = {"rotate_degrees": 30.0, "shift_pixels": 2, "brightness": 0.2}
    assert torch.equal(changer(**kinds).move(image), changer(**kinds).move(image))
    other = Augmenter.at(Augment(**kinds), seed=0, epoch=1, step=2, rank=1)
    assert not torch.equal(changer(**kinds).move(image), other.move(image))


def test_a_shift_moves_by_whole_or_part_pixels_within_bounds():
    image = torch.zeros(64, 1, 9, 12)
    image[:, :, 4, 6] = 1
    moved = changer(shift_pixels=2).move(image)
    rows, columns = moved.sum(dim=(1, 3)), moved.sum(dim=(1, 2))
    assert rows[:, 2:7].sum(1).min() > 0.99
    assert columns[:, 4:9].sum(1).min() > 0.99
    assert len({tuple(row) for row in rows.tolist()}) > 10


def test_rotation_keeps_a_disc_and_turns_a_bar():
    axis = torch.arange(33) - 16.0
    disc = ((axis[:, None] ** 2 + axis[None] ** 2) < 100).float().expand(8, 1, 33, 33)
    assert (changer(rotate_degrees=90.0).move(disc) - disc).abs().mean() < 0.03
    bar = (axis[None].abs() < 2).float().expand(33, 33).expand(8, 1, 33, 33)
    assert (changer(rotate_degrees=90.0).move(bar) - bar).abs().mean() > 0.03


def test_brightness_stays_in_range():
    bright = changer(brightness=0.5).move(torch.full((16, 1, 2, 2), 0.9))
    assert bright.max() <= 1
    assert bright.min() >= 0.44


def test_mixup_keeps_a_share_and_names_partners():
    kept, other = changer(mixup_alpha=0.4).mix(10)
    assert 0 <= kept <= 1
    assert sorted(other.tolist()) == list(range(10))
    assert changer(brightness=0.1).mix(10) is None


@pytest.mark.parametrize("kinds", [{}, {"rotate_degrees": 1.0}, {"mixup_alpha": 0.1}])
def test_off_means_off(kinds):
    assert is_on(Augment(**kinds)) == bool(kinds)

import torch

from models.data.preparation import Preparation
from models.training.batches.examples import open_examples


def opened(job):
    return open_examples(job, Preparation.load(job.prepared))


def test_a_table_is_gathered_by_position(make_job):
    train, validation = opened(make_job("table"))
    assert (len(train), len(validation)) == (200, 50)
    inputs = train.gather(torch.tensor([5, 3]))
    assert inputs["numeric"].dtype == torch.float32
    assert inputs["categorical"].dtype == torch.int64
    assert torch.equal(inputs["numeric"][1], train.tensors["numeric"][3])
    assert train.gather_target(torch.tensor([5, 3])).dtype == torch.float32


def test_a_series_gives_the_rows_up_to_its_end(make_job):
    train, _ = opened(make_job("series", "regression"))
    window = train.gather(torch.tensor([4]))["series"]
    assert window.shape == (1, 6, 3)
    assert torch.equal(window[0], train.tensors["series"][4:10])


def test_a_text_gives_windows_and_what_follows_each_character(make_job):
    train, validation = opened(make_job("text", "language", count=40))
    assert (len(train), train.tensors["tokens"].dtype) == (40, torch.uint8)
    inputs, target = train.gather(torch.tensor([3, 0]))["tokens"], train.gather_target(torch.tensor([3, 0]))
    assert inputs.dtype == target.dtype == torch.int64
    assert inputs[0].tolist() == train.tensors["tokens"][24:32].tolist()
    assert target[0].tolist() == train.tensors["tokens"][25:33].tolist()
    assert validation.targets().shape == (50, 8)


def test_images_are_normed_and_changed_before(make_job):
    train, _ = opened(make_job("image", "multiclass"))
    pixels = train.tensors["image"][:2]
    torch.testing.assert_close(train.gather(torch.arange(2))["image"], (pixels / 255 - 0.5) / 0.25)
    black = train.gather(torch.arange(2), lambda image: image * 0)["image"]
    assert (black == -2).all()

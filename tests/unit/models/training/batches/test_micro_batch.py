import torch

from models.data.preparation import Preparation
from models.nets.sizes import Sizes
from models.training.batches.examples import open_examples
from models.training.batches.micro_batch import BatchMaker
from models.training.optimisation.pretrain import MaskingScheme


def batches(job, hiding=False):
    preparation = Preparation.load(job.prepared)
    hidden = MaskingScheme(Sizes.of(preparation), job.train.pretrain) if hiding else None
    return BatchMaker(job, open_examples(job, preparation)[0], hidden)


def same(a, b):
    return torch.equal(a.target, b.target) and all(torch.equal(a.inputs[name], b.inputs[name]) for name in a.inputs)


def test_without_changes_the_examples_are_as_they_are(make_job):
    made = batches(make_job())
    some = torch.tensor([3, 1])
    batch = made.at(some, 0, 0, 0)
    assert torch.equal(batch.inputs["numeric"], made.examples.gather(some)["numeric"])
    assert torch.equal(batch.target, made.examples.gather_target(some))
    assert batch.mixed is None


def test_the_place_alone_decides_the_changes(make_job):
    for train in (
        {"kind": "table", "augment": {"noise": 0.1, "swap": 0.2}},
        {"kind": "image", "task": "multiclass", "augment": {"flip": True, "erase": 0.5, "mixup_alpha": 0.3}},
        {"kind": "series", "task": "regression", "augment": {"noise": 0.1}},
    ):
        made = batches(make_job(**train))
        some = torch.arange(20)
        assert same(made.at(some, 1, 2, 0), made.at(some, 1, 2, 0))
        for other in ((2, 2, 0), (1, 3, 0), (1, 2, 1)):
            assert not same(made.at(some, 1, 2, 0), made.at(some, *other))


def test_pretraining_hides_and_asks_for_what_was_there(make_job):
    made = batches(make_job(pretrain={"mask": 0.5}), hiding=True)
    some = torch.arange(50)
    plain = made.examples.gather(some)
    batch = made.at(some, 0, 0, 0)
    true, hidden = batch.target[:, 0], batch.target[:, 1].bool()
    assert torch.equal(true[:, :3], plain["numeric"])
    assert torch.equal(true[:, 3:].long(), plain["categorical"])
    assert 0.3 < hidden.float().mean() < 0.7
    assert not batch.inputs["numeric"][hidden[:, :3]].any()
    assert torch.equal(batch.inputs["numeric"][~hidden[:, :3]], plain["numeric"][~hidden[:, :3]])
    assert not batch.inputs["categorical"][hidden[:, 3:]].any()

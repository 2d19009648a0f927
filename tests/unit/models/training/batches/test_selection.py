import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from models.project_spec.methods import Recent
from models.training.batches.selection import KEY, fold_of, is_chosen, recent_of


@given(counts=st.lists(st.integers(0, 40), min_size=2, max_size=4), k=st.integers(2, 5))
def test_every_fold_gets_its_share_of_every_class(counts, k):
    target = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    fold = fold_of(target, k, seed=0)
    for label, count in enumerate(counts):
        per_fold = torch.bincount(fold[target == label], minlength=k)
        assert per_fold.max() - per_fold.min() <= 1
        assert per_fold.sum() == count


@given(sizes=st.lists(st.integers(1, 9), min_size=5, max_size=30), k=st.integers(2, 5))
def test_no_group_is_divided_and_the_folds_are_about_equal(sizes, k):
    groups = torch.repeat_interleave(torch.arange(len(sizes)) * 7 - 3, torch.tensor(sizes))
    groups = groups[torch.randperm(len(groups), generator=torch.Generator().manual_seed(1))]
    fold = fold_of(torch.zeros(len(groups)), k, seed=0, groups=groups)
    for group in groups.unique():
        assert len(fold[groups == group].unique()) == 1
    counts = torch.bincount(fold, minlength=k)
    assert counts.max() - counts.min() <= max(sizes)


@given(sizes=st.lists(st.integers(1, 9), min_size=5, max_size=30), k=st.integers(2, 5))
def test_every_fold_gets_groups_with_an_order(sizes, k):
    groups = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    ordered = groups < k  # as few as can be
    fold = fold_of(torch.zeros(len(groups)), k, seed=0, groups=groups, ordered=ordered)
    assert torch.equal(fold[ordered].unique(), torch.arange(k))


@given(sizes=st.lists(st.integers(1, 9), min_size=5, max_size=30), k=st.integers(2, 5))
def test_no_time_lies_on_both_sides_of_a_block(sizes, k):
    times = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    order = torch.randperm(len(times), generator=torch.Generator().manual_seed(1))
    block = fold_of(torch.zeros(len(times)), k, seed=0, blocks=True, times=times[order])
    spans = [times[order][block == number] for number in range(k)]
    assert all(len(span) for span in spans)
    assert all(before.max() < after.min() for before, after in itertools.pairwise(spans))


@given(count=st.integers(5, 60), k=st.integers(2, 5), seed=st.integers(0, 20))
def test_blocks_are_stretches_of_time_whatever_the_order_of_the_rows(count, k, seed):
    times = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    target = torch.zeros(count)
    fold = fold_of(target, k, seed=0, blocks=True, times=times)
    in_order = fold_of(target, k, seed=0, blocks=True)
    assert torch.equal(fold[torch.argsort(times)], in_order)
    assert torch.equal(fold_of(target, k, seed=0, blocks=True, times=torch.arange(count)), in_order)


def test_the_newest_are_kept_and_some_of_the_older(make_job):
    tensors = {"target": torch.zeros(100)}
    job = make_job(recent=Recent(share=0.2, replay=0.25))
    keep = recent_of(tensors, None, job)
    assert keep.tolist() == sorted(set(keep.tolist()))
    assert keep[-20:].tolist() == list(range(80, 100))
    assert len(keep) == 20 + 20
    assert torch.equal(keep, recent_of(tensors, None, job))
    other = make_job(recent=Recent(share=0.2, replay=0.25), seed=1)
    assert not torch.equal(keep, recent_of(tensors, None, other))


def test_newest_by_their_time_where_the_split_goes_by_time(make_job):
    tensors = {"target": torch.zeros(10), KEY: torch.tensor([9, 8, 7, 6, 5, 4, 3, 2, 1, 0])}
    job = make_job(recent=Recent(share=0.2, replay=0.0), job={"fold_by": "blocks"})
    assert recent_of(tensors, None, job).tolist() == [0, 1]
    assert recent_of(tensors, torch.arange(2, 10), job).tolist() == [2, 3]


def test_the_newest_groups_are_kept_whole(make_job):
    groups = torch.tensor([5, 3, 9, 3, 5, 7, 9, 1, 7, 1])  # the last rows of 3, 5, 9, 7 and 1, in this order
    tensors = {"target": torch.zeros(10), KEY: groups}
    job = make_job(recent=Recent(share=0.4, replay=0.0), job={"fold_by": "groups"})
    assert recent_of(tensors, None, job).tolist() == [5, 7, 8, 9]
    job = make_job(recent=Recent(share=0.4, replay=0.34), job={"fold_by": "groups"})
    assert torch.bincount(groups[recent_of(tensors, None, job)]).unique().tolist() == [0, 2]


def test_pretraining_sees_all_rows(make_job):
    job = make_job(recent=Recent(), pretrain={})
    assert is_chosen(job)
    first = job.model_copy(update={"stage": "pretrain"})
    assert recent_of({"target": torch.zeros(10)}, None, first) is None
    assert not is_chosen(first)


def test_a_rare_class_of_few_groups_is_in_every_fold():
    """Dealt by size alone, all three groups of the rare class may fall into two folds."""
    for seed in range(10):
        groups = torch.arange(40).repeat_interleave(5)
        target = (groups < 3).long() + 2 * ((groups >= 3) & (groups < 10)).long()
        fold = fold_of(target, 3, seed=seed, groups=groups)
        assert all(torch.equal(fold[target == each].unique(), torch.arange(3)) for each in (0, 1, 2))
        assert all(len(fold[groups == group].unique()) == 1 for group in range(40))
        counts = torch.bincount(fold, minlength=3)
        assert counts.max() - counts.min() <= 10

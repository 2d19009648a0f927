"""A sample of examples divides no group of a ranking."""

from pathlib import Path

import numpy as np

from models.data.sampled_examples import sampled_examples
from tests.goal_jobs import prepared_table


def test_of_a_ranking_whole_groups_are_taken(tmp_path: Path) -> None:
    rng, group = np.random.default_rng(0), np.repeat(np.arange(100), 7)
    columns = {"x": rng.normal(size=700), "group": group, "y": rng.integers(0, 3, 700)}
    data = {"task": "ranking", "split": {"by": "group", "column": "group"}}
    prepared_table(tmp_path / "table", columns, data=data, goal={"metric": "ndcg"})
    target = np.stack([columns["y"], group], axis=1).astype(float)
    chosen = sampled_examples(tmp_path / "table/prepared", "train", target, "ranking", 100)
    assert len(chosen) == 98
    assert {*np.unique(group[chosen], return_counts=True)[1].tolist()} == {7}
    apart = sampled_examples(tmp_path / "table/prepared", "train", target, "regression", 100)
    assert len(apart) == 100
    assert len(np.unique(group[apart])) > 90
    everything = sampled_examples(tmp_path / "table/prepared", "train", target, "ranking", 1000)
    np.testing.assert_array_equal(everything, np.arange(700))

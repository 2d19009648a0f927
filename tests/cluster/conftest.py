"""Tests on real clusters: `make cluster-slurm` and `make cluster-kubernetes`."""

from collections.abc import Iterator

import pytest

from tasks.ranks.rank_pool import RankPool
from tests import slurm_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm_cluster.SlurmCluster]:
    """A Slurm cluster of two nodes."""
    if reason := slurm_cluster.why_not():
        pytest.skip(f"no Slurm cluster here: {reason}")
    with slurm_cluster.slurm_cluster() as running, pytest.MonkeyPatch.context() as patch:
        for key, value in running.environment.items():
            patch.setenv(key, value)
        yield running


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    """The rank pool of this machine, for what is expected."""
    with RankPool() as warmed:
        yield warmed

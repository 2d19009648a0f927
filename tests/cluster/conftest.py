"""Tests on real clusters: `make cluster-slurm` and `make cluster-kubernetes`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.ranks.rank_pool import RankPool
from tests import kubernetes_cluster, kueue, slurm_cluster
from tests.cluster_loops import run_whole
from tests.empty_image import IMAGE


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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A place of Kubernetes whose volume is the folder of this session's tests."""
    mount = str(tmp_path_factory.getbasetemp())
    return {"engine": "kubernetes", "image": IMAGE, "claim": kubernetes_cluster.CLAIM, "mount": mount}


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kubernetes_cluster.KubernetesCluster]:
    """A Kubernetes cluster of two nodes, to which kubectl goes."""
    if reason := kubernetes_cluster.why_not():
        pytest.skip(f"no Kubernetes cluster here: {reason}")
    shared = tmp_path_factory.getbasetemp()
    with kubernetes_cluster.kubernetes_cluster(shared) as running, pytest.MonkeyPatch.context() as patch:
        for key, value in running.environment.items():
            patch.setenv(key, value)
        yield running


@pytest.fixture(scope="module")
def queued(kubernetes: kubernetes_cluster.KubernetesCluster) -> kubernetes_cluster.KubernetesCluster:
    """The same cluster with Kueue, which stays."""
    if reason := kueue.why_not():
        pytest.skip(f"no Kueue here: {reason}")
    kueue.start_kueue(kubernetes)
    return kubernetes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of a loop that nobody disturbs, with two ranks on this machine."""
    home = tmp_path_factory.mktemp("whole") / "home"
    run_whole(home, None, "train.ranks=2")
    return home

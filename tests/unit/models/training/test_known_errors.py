"""Raw errors of torch, NCCL and oneDNN get a sentence with a cure; the original stays below."""

import os
import subprocess
import sys

import pytest
import torch

from models.errors import TrainingError, UsageError
from models.training import rank
from models.training.known_errors import explaining, explanation
from models.training.rank import device_of
from tests.tiny_jobs import MakeJob

# The first as it was reported to NVIDIA/Megatron-LM (issue 661). The others are texts of CUDA and triton, not produced
# here: they need a GPU.
RECORDED = {
    "NCCL error in: ProcessGroupNCCL.cpp:1727, invalid usage, NCCL version 2.19.3\nLast error:\nDuplicate GPU "
    "detected : rank 3 and rank 0 both on CUDA device f000": "set train.ranks to at most the GPUs of a machine",
    "CUDA error: no kernel image is available for execution on the device": "install a build of torch for its compute",
    "CUDA error: invalid device ordinal": "look at CUDA_VISIBLE_DEVICES",
    "CUDA error: device-side assert triggered": "an index was out of range on the GPU",
    "CUDA error: all CUDA-capable device(s) is/are busy or unavailable": "another program holds the GPU",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": "lower train.batch",
    "Bootstrap : no socket interface found": "NCCL_SOCKET_IFNAME: eth0",
    "Error while creating shared memory segment /dev/shm/nccl-8PDQwE (size 9637888)": "--shm-size=1g",
    "CUDA error: an illegal memory access was encountered": "CUDA_LAUNCH_BLOCKING=1",
    "Cannot find a working triton installation. Either the package is not installed": "train.compile: false",
}


@pytest.mark.parametrize(("raw", "cure"), RECORDED.items())
def test_a_known_error_has_its_cure_and_the_original_below(raw: str, cure: str) -> None:
    with pytest.raises(TrainingError) as caught, explaining("rank 1"):
        raise RuntimeError(raw)
    first, _, rest = str(caught.value).partition("\n")
    assert first.startswith("rank 1: ")
    assert cure in first
    assert rest == f"RuntimeError: {raw}"


def test_what_a_lost_peer_causes_stays_as_it_is_for_the_agents() -> None:
    raw = "NCCL communicator was aborted on rank 1. Connection closed by remote peer"
    with pytest.raises(RuntimeError, match=raw), explaining("rank 0"):
        raise RuntimeError(raw)
    with pytest.raises(UsageError, match="invalid device ordinal"), explaining("rank 0"):
        raise UsageError("invalid device ordinal")


@pytest.mark.wide
def test_a_processor_without_bf16_lstm_is_named() -> None:
    """oneDNN is told to use no more than AVX2; it reads that once, so in a process of its own."""
    code = (
        "import torch\nwith torch.autocast('cpu', dtype=torch.bfloat16):\n"
        " torch.nn.LSTM(4, 8, batch_first=True)(torch.randn(2, 5, 4))"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    sentence = explanation(RuntimeError(ran.stderr.splitlines()[-1]))
    assert sentence is not None
    assert "say train.precision: fp32, or take another net" in sentence


def test_ranks_beyond_the_gpus_are_refused_by_the_ranks_too(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device_of(make_job()) == torch.device("cuda", 0)
    with pytest.raises(UsageError, match=r"train.ranks: got 2, but this machine has 1 GPU"):
        rank.device_of(make_job(ranks=2))

"""Errors of torch, CUDA, NCCL, oneDNN and the compilers that a person meets, each with a sentence and its cure.

Only errors are listed that the same start would meet again. What a lost peer causes is not: torch's agents then start
the ranks again, and must see the error as it was raised.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from models.errors import LooplineError, TrainingError


class KnownError(NamedTuple):
    """A part of the raw message, as a regular expression, and what it means, with the cure."""

    pattern: str
    sentence: str


KNOWN = (
    KnownError(
        r"Duplicate GPU detected",
        "two ranks were given the same GPU, which NCCL refuses: set train.ranks to at most the GPUs of a machine, and "
        "give each job of a scheduler GPUs of its own",
    ),
    KnownError(
        r"[Nn]o socket interface found",
        "NCCL found no network interface between the ranks: name it, such as train.nccl: {NCCL_SOCKET_IFNAME: eth0} "
        "(`ip address` lists them)",
    ),
    KnownError(
        r"Error while creating shared memory segment",
        "NCCL has too little shared memory between the ranks: give the container more (docker run --shm-size=1g), or "
        "say train.nccl: {NCCL_SHM_DISABLE: 1}",
    ),
    KnownError(
        r"an illegal memory access was encountered",
        "a kernel wrote outside its memory: if train.compile is on, say train.compile: false; else run once with "
        "CUDA_LAUNCH_BLOCKING=1, which names the operation",
    ),
    KnownError(
        r"could not create a primitive",
        "this processor's oneDNN cannot compute a layer in this precision (an LSTM in bf16 needs AVX-512): say "
        "train.precision: fp32, or take another net (gru, transformer)",
    ),
    KnownError(
        r"no kernel image is available",
        "this build of torch has no kernels for this GPU, which is too old or too new for it: install a build of torch "
        "for its compute capability, or hide the GPU (CUDA_VISIBLE_DEVICES=)",
    ),
    KnownError(
        r"CUDA driver version is insufficient|NVIDIA driver on your system is too old",
        "the GPU's driver is older than this build of torch needs: update the driver, or hide the GPU "
        "(CUDA_VISIBLE_DEVICES=)",
    ),
    KnownError(
        r"invalid device ordinal",
        "the ranks need more GPUs than this process may see: lower train.ranks, or look at CUDA_VISIBLE_DEVICES",
    ),
    KnownError(
        r"CUDA-capable device\(s\) is/are busy or unavailable",
        "another program holds the GPU for itself: end it (nvidia-smi shows it), or set the GPU's compute mode to "
        "default",
    ),
    KnownError(
        r"device-side assert triggered",
        "an index was out of range on the GPU, mostly a class or a category that the net has no place for: run once on "
        "a CPU (CUDA_VISIBLE_DEVICES=), which names it",
    ),
    KnownError(
        r"uncorrectable (NVLink|ECC) error",
        "the GPU reports a hardware fault: take the machine out of use, and run again on another",
    ),
    KnownError(
        r"CUBLAS_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)|CUDNN_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)",
        "a library of the GPU could not start, mostly because its memory is full: lower train.batch, or end other "
        "programs on the GPU (nvidia-smi shows them)",
    ),
    KnownError(
        r"No working C\+\+ compiler found|Failed to find C compiler|Cannot find a working triton installation",
        "train.compile needs a compiler: install g++ (on a GPU also triton, and a C compiler), or say "
        "train.compile: false",
    ),
)


def explanation(error: BaseException) -> str | None:
    """Return the sentence for a known error, the original below it; None for any other error."""
    text = str(error)
    for error_class in KNOWN:
        if re.search(error_class.pattern, text):
            return f"{error_class.sentence}\n{type(error).__name__}: {text}"
    return None


@contextlib.contextmanager
def explaining(where: str) -> Iterator[None]:
    """Raise a known error as a `TrainingError` with its cure; other errors pass.

    Args:
        where: What was tried, such as `rank 0`, for the beginning of the message.

    Raises:
        TrainingError: The error is known.
    """
    try:
        yield
    except LooplineError:
        raise
    except Exception as error:
        sentence = explanation(error)
        if sentence is None:
            raise
        raise TrainingError(f"{where}: {sentence}") from error

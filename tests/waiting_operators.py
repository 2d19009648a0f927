"""Counts the operators for which a GPU would have to finish all work that was launched before."""

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Their results have a shape or a value that only the data decide.
_READS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "is_nonzero",
    "unique_dim",
    "_unique2",
    "bincount",
}


class WaitingOperators(TorchDispatchMode):
    """Counts them by name inside `with`, on tensors of a CPU too."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0]
        masks = name.startswith("aten::index") and any(
            isinstance(one, torch.Tensor) and one.dtype == torch.bool
            for one in (args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ())
        )
        if name.removeprefix("aten::") in _READS or masks:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))

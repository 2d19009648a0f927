"""Foretells the memory of a fit that needs a table's rows at once, and refuses what cannot fit before the search.

Figures and how they were measured: docs/decisions/0126-memory-of-tables-is-foretold.md. They err both ways: mostly too
high where a fit takes some hundred MB, which refuses nothing on a usual machine, and too low for the largest measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from models.cores import usable_memory
from models.errors import UsageError
from models.kinds.data_kind import PerDataKind
from models.nets.catalogue import FAMILIES, net_name, row_of
from models.project_spec.blocks import Spec
from models.project_spec.references import NetSort, sort_of_net

if TYPE_CHECKING:
    from models.data.preparation import Preparation

OTHERS, MOST_OF_OTHERS = 0.93e9, 0.93
"""Bytes of the other processes of a loop (its own .3 GB at 4e6 rows, the one that holds torch for its children .25, a
server .2, what a fit has of its own .14, the kernel .03), and the largest share of a small memory that is theirs."""
LEAST_CELLS = 1 << 20
"""Cells below which nothing is looked at, of numbers and categories."""


class FitSize(NamedTuple):
    """What the memory of a fit follows from.

    Attributes:
        rows: Training and validation rows.
        numbers: Numeric inputs.
        categories: The number of values of each categorical input; 1 where it is not known.
        outputs: Of the model, or its classes.
    """

    rows: int
    numbers: int
    categories: Sequence[int]
    outputs: int = 1


def fit_bytes(net: str, size: FitSize, base: Path, *, is_refit: bool) -> float:
    """Return the bytes of a fit beside those of the process before; 0 of a net that reads batches.

    Args:
        net: By its resolved name.
        size: Of the table.
        base: The folder of the spec.
        is_refit: Whether the model is fitted again with the validation rows.
    """
    memory = row_of(net).memory
    width = len(size.categories)
    cells = sum(size.categories) if _HAS_ONE_HOT[sort_of_net(net)] and _is_one_hot(net, base) else width
    of_row = memory.row + memory.number * size.numbers + memory.category * cells + memory.output * size.outputs
    if is_refit:
        of_row += memory.joined_row + memory.joined_cell * (size.numbers + width)
    return size.rows * of_row


_HAS_ONE_HOT: dict[NetSort, bool] = {"ready": False, "net": False, "class": True, "row": True}


def _is_one_hot(net: str, base: Path) -> bool:
    from models.estimators.source import row_of_source

    return row_of_source(net, base).categories == "one-hot"


def check_prepared(spec: Spec, preparation: Preparation, base: Path) -> None:
    """Refuse a family of the search that cannot hold the prepared rows of a table.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    rows = fitted_rows(spec.train.rows, preparation.rows["train"], preparation.rows.get("validation", 0))
    size = FitSize(rows, preparation.num_numeric, preparation.cardinalities, preparation.num_outputs)
    if rows * (size.numbers + len(size.categories)) >= LEAST_CELLS:
        FITS[preparation.kind](spec, size, base)


def fitted_rows(most: int | None, train: int, validation: int = 0) -> int:
    """Return the training and validation rows that a fit holds: of the first at most `train.rows`."""
    return min(train, most or train) + validation


def _accept(*_: object) -> None:
    """Refuse nothing."""


def check_fits(spec: Spec, size: FitSize, base: Path) -> None:
    """Refuse a family that cannot hold so many rows on this machine; see `check_prepared`."""
    from models.training.families import families_of

    if spec.train.on != "here":
        return
    nets = [net_name(net, spec.data.kind) for net in families_of(spec)]
    memory = usable_memory()
    left = memory - min(OTHERS, MOST_OF_OTHERS * memory)
    needs = {net: fit_bytes(net, size, base, is_refit=spec.train.refit) for net in nets}
    too_large = {net: needed for net, needed in needs.items() if needed > left}
    if not too_large:
        return
    net = max(too_large, key=lambda name: too_large[name])
    is_choice = len(nets) > 1
    fitting = [name for name in nets if name not in too_large] or [_IN_BATCHES]
    key, others = ("search.families", f"[{', '.join(fitting)}]") if is_choice else ("model.net", fitting[0])
    raise UsageError(
        f"{key}: {net} needs about {too_large[net] / 1e9:,.3g} GB for {size.rows:,} training and validation rows of "
        f"{size.numbers + len(size.categories)} inputs, but of this machine's {memory / 1e9:,.3g} GB of memory "
        f"{left / 1e9:,.3g} GB are left for it: let it learn from fewer rows (train.rows), about "
        f"{int(size.rows * left / too_large[net]):,} together with those of validation (data.split.validation), take "
        f"fewer columns (data.features.drop), or {key}: {others}, which needs less"
    )


_IN_BATCHES = FAMILIES[-1]
"""A net, which reads a large table in batches."""
FITS: PerDataKind[Callable[[Spec, FitSize, Path], None]] = {
    "table": check_fits,
    "image": _accept,
    "series": _accept,
    "text": _accept,
}
"""The memory of fits is foretold of tables; of series it follows from the features of their windows."""

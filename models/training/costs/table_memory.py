"""Foretells the memory of what needs a table's rows at once, and refuses before any is read what cannot fit.

Figures and how they were measured: docs/decisions/0126-memory-of-tables-is-foretold.md. All are rather too low than
too high, so that nothing is refused that works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from models.cores import usable_memory
from models.errors import DataError, UsageError
from models.kinds.data_kind import PerDataKind
from models.nets.catalogue import FAMILIES, net_name, row_of
from models.project_spec.blocks import Data, Spec
from models.project_spec.references import NetSort, sort_of_net
from models.sources.delimiter import PARQUET
from models.sources.schemes import scheme_of
from models.sources.source import Source

if TYPE_CHECKING:
    from models.data.preparation import Preparation

OTHERS = 0.8e9
"""Bytes of the loop's own process and of the one that holds torch for its children: .85 GB at 4e6 rows."""
_LEAST_CELLS = 1 << 24
"""Cells below which nothing is looked at: a gigabyte at most."""
_LEAST_BYTES = 1 << 20
"""Of a file that is looked at: a smaller one is not opened, which would import Arrow."""
_MADE, _SERIES = 16, 60
"""Bytes of a cell: own functions get a frame of all rows, and its result is one more; series were measured at 120."""


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


def check_source(spec: Spec, base: Path) -> None:
    """Refuse what a Parquet file of this machine or a folder of them is too large for, by their footers alone.

    Rows that `data.deduplicate` or `data.newest` leaves out are not known yet: then only the prepared rows tell.

    Args:
        spec: The project's.
        base: The folder of the spec.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    path = scheme_of(spec.data.source).local(Source(spec.data.source, base))
    if path is None or (path.is_file() and (path.suffix not in PARQUET or path.stat().st_size < _LEAST_BYTES)):
        return
    import pyarrow.parquet as pq

    from models.data.columns import choose
    from models.sources.folders import data_files
    from models.sources.read import UNREADABLE

    try:
        files = data_files(path)
        if not files or files[0].suffix not in PARQUET:
            return
        rows, schema = sum(pq.read_metadata(file).num_rows for file in files), pq.read_schema(files[0])
        if rows * len(schema) < _LEAST_CELLS:
            return
        check_whole_table(spec.data, rows, len(schema))
        if spec.data.deduplicate or spec.data.newest:
            return
        columns = choose(schema, spec.data)
    except (*UNREADABLE, DataError):
        return  # ingest says what is wrong with the file
    rows -= sum(_nulls(files, name) for name in spec.data.targets)
    numbers = len(columns.of("numeric"))
    size = FitSize(round(rows * (1 - spec.data.split.test)), numbers, [1] * (len(columns.inputs) - numbers))
    _FITS[spec.data.kind](spec, size, base)


def _nulls(files: Sequence[Path], name: str) -> int:
    """Return the rows without a value of a column, as far as the footers tell; all of a file that does not tell."""
    import pyarrow.parquet as pq

    count = 0
    for file in files:
        metadata, schema = pq.read_metadata(file), pq.read_schema(file)
        index = schema.get_field_index(name)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        told = [group.column(index).statistics for group in groups] if metadata.num_columns == len(schema) else []
        is_told = index >= 0 and told and all(part is not None and part.has_null_count for part in told)
        count += sum(part.null_count for part in told) if is_told else metadata.num_rows
    return count


def check_prepared(spec: Spec, preparation: Preparation, base: Path) -> None:
    """Refuse a family of the search that cannot hold the prepared rows of a table.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    rows = preparation.rows["train"] + preparation.rows.get("validation", 0)
    size = FitSize(rows, preparation.num_numeric, preparation.cardinalities, preparation.num_outputs)
    if rows * (size.numbers + len(size.categories)) >= _LEAST_CELLS // 16:  # one-hot categories are many columns
        _FITS[preparation.kind](spec, size, base)


def _accept(*_: object) -> None:
    """Refuse nothing."""


def check_fits(spec: Spec, size: FitSize, base: Path) -> None:
    """Refuse a family that cannot hold so many rows on this machine; see `check_source` and `check_prepared`."""
    from models.training.families import families_of

    if spec.train.on != "here":
        return
    nets = [net_name(net, spec.data.kind) for net in families_of(spec)]
    memory = usable_memory()
    left = memory - min(OTHERS, memory / 2)
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
        f"{left / 1e9:,.3g} GB are left for it: take a sample of about {int(size.rows * left / too_large[net]):,} of "
        f"these rows in the source, fewer columns (data.features.drop), or {key}: {others}, which needs less"
    )


_IN_BATCHES = FAMILIES[-1]
"""A net, which reads a large table in batches."""
_FITS: PerDataKind[Callable[[Spec, FitSize, Path], None]] = {
    "table": check_fits,
    "image": _accept,
    "series": _accept,
    "text": _accept,
}
"""The memory of fits is foretold of tables; of series it follows from the features of their windows."""


def check_whole_table(data: Data, rows: int, columns: int) -> None:
    """Refuse own functions of features and series whose rows, which they need at once, cannot fit.

    Args:
        data: The spec's block.
        rows: Of the source.
        columns: Of the source.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    whole = _WHOLE[data.kind]
    made = {"data.features.make": data.features.make, "data.features.fit": data.features.fit}
    key, cell = next(((key, _MADE) for key, function in made.items() if function), ("data.kind", whole))
    needed, memory = float(rows) * columns * cell, usable_memory()
    if needed <= memory:
        return
    what = f"{data.kind} is prepared as a whole" if key == "data.kind" else f"{made[key]} gets all rows at once"
    raise UsageError(
        f"{key}: {what}, which needs at least {needed / 1e9:,.3g} GB for {rows:,} rows of {columns} columns, but this "
        f"machine has {memory / 1e9:,.3g} GB of memory: take at most about {int(rows * memory / needed):,} rows or "
        "fewer columns in the source"
        + ("" if key == "data.kind" else ", or make these columns there, in a query or a file that is written in parts")
    )


_WHOLE: PerDataKind[int] = {"table": 0, "image": 0, "series": _SERIES, "text": 0}
"""Bytes of a cell that preparing needs at least; 0: it is done in parts, or the text's own limits hold."""


def check_raw(spec: Spec, raw: Path) -> None:
    """Refuse the raw table of any source that what the spec asks for needs at once; see `check_whole_table`.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(raw)
    check_whole_table(spec.data, metadata.num_rows, metadata.num_columns)

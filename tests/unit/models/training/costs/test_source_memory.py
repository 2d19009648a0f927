"""What cannot hold a table is refused by the footers of its files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import UsageError
from models.project_spec.blocks import Spec
from models.training.costs import source_memory, table_memory
from models.training.costs.source_memory import check_source


def spec_of(net: str = "auto", **data: Any) -> Spec:
    blocks = {"data": {"source": "rows.parquet", "target": "y", **data}, "model": {"net": net}}
    return Spec.model_validate({"name": "large", **blocks})


@pytest.fixture
def parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(source_memory, "LEAST_CELLS", 1)
    monkeypatch.setattr(source_memory, "_LEAST_BYTES", 1)
    rows = pa.table({"x": [1.0, 2.0] * 500, "c": ["a", "b"] * 500, "y": [0, None] * 500})
    pq.write_table(rows, tmp_path / "rows.parquet")
    return tmp_path


def test_a_file_is_refused_by_its_footer_and_rows_without_a_target_do_not_count(
    parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_memory, "usable_memory", lambda: 1e4)
    with pytest.raises(UsageError, match="for 425 training and validation rows of 2 inputs"):
        check_source(spec_of("trees"), parquet)
    check_source(spec_of("trees", deduplicate=True), parquet)  # how many rows stay is not known
    monkeypatch.setattr(table_memory, "usable_memory", lambda: 1e6)
    check_source(spec_of("trees"), parquet)


def test_other_files_and_absent_ones_are_not_looked_at(parquet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_memory, "usable_memory", lambda: 1.0)
    (parquet / "rows.csv").write_text("x,y\n1,2\n")
    check_source(spec_of("trees", source="rows.csv"), parquet)
    check_source(spec_of("trees", source="none.parquet"), parquet)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("rows.json", "write it as Parquet or CSV"),
        ("rows.jsonl.gz", "write it as Parquet or CSV"),
        ("rows.xlsx", "write it as Parquet or CSV"),
        ("rows.txt", "take a part of it"),
    ],
)
def test_what_is_read_as_a_whole_is_refused_by_its_size(
    name: str, cure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(2 << 20)
    check_source(spec_of(source=name), tmp_path)
    monkeypatch.setattr(source_memory, "usable_memory", lambda: 4e6)
    with pytest.raises(UsageError, match=f"is read as a whole, which needs at least .*: {cure}"):
        check_source(spec_of(source=name), tmp_path)


def test_a_folder_of_pictures_is_refused_by_their_number_and_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        path = tmp_path / "leaves" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    image = {"height": 64, "width": 64, "channels": 3, "resize": "crop"}
    spec = spec_of(source="leaves", target="class", kind="image", image=image)
    check_source(spec, tmp_path)
    monkeypatch.setattr(source_memory, "usable_memory", lambda: 4e5)
    with pytest.raises(UsageError, match=r"20 pictures of 64 x 64 x 3 .* take at most about 10 of them"):
        check_source(spec, tmp_path)

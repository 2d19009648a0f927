import gc
import os
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.host import memory

MB = 1 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_what_a_table_took_goes_back_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "WORTH_MB", 0)
    before = resident()
    table = pa.table({"x": pa.array(os.urandom(MB) * 32 for _ in range(3))})
    assert table.num_rows == 3
    assert resident() - before > 75 * MB
    del table
    memory.release()
    assert resident() - before < 50 * MB


def test_garbage_is_collected_only_where_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "WORTH_MB", 0)
    memory.release()
    with monkeypatch.context() as patch:
        patch.setattr(gc, "collect", lambda: pytest.fail("it collected garbage"))
        memory.release()
    cycle = [bytearray(os.urandom(MB) * (memory.GROWN_MB + 16))]
    cycle.append(cycle)
    before = resident()
    del cycle
    memory.release()
    assert before - resident() > memory.GROWN_MB * MB


def test_a_small_process_is_spared_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "WORTH_MB", 1 << 20)
    monkeypatch.setattr(gc, "collect", lambda: pytest.fail("it collected garbage"))
    memory.release()


def test_pages_of_a_mapped_file_are_not_what_a_process_holds(tmp_path: Path) -> None:
    with (tmp_path / "rows").open("wb") as file:
        file.truncate(3 * memory.GROWN_MB * MB)
    before = memory._held()
    with pa.memory_map(str(tmp_path / "rows")) as pages:
        assert not np.frombuffer(pages.read_buffer(), np.uint8).any()  # each page is in memory
        assert memory._held() - before < memory.GROWN_MB * MB

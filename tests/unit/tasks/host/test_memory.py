import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

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
    program = (
        "import numpy as np, pyarrow as pa, sys\n"
        "from tasks.host import memory\n"
        "before = memory._held()\n"
        "pages = np.frombuffer(pa.memory_map(sys.argv[1]).read_buffer(), np.uint8)\n"
        "assert not pages.any()  # each page is in memory\n"
        "print(memory._held() - before)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "rows")]  # a forked process shares its pages with others
    grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(grown) < memory.GROWN_MB * MB

"""The address of an error in the reference: the module that raised it, from the traceback.

`reference/errors.md` is written from the code, with an anchor for each module that raises errors; so nothing has to be
registered, and no message carries an address of its own.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("models", "tasks", "flows")
PAGE = "reference/errors"
FRAME = re.compile(r'^ *File "([^"]+)\.py", line', re.MULTILINE)


def address_of(error: BaseException) -> str | None:
    """Return the page and the anchor of the module that raised an error; None if no module of Loopline did.

    An error of another process, such as a rank, has its traceback there as a note.
    """
    files = [Path(frame.f_code.co_filename).with_suffix("") for frame, _ in traceback.walk_tb(error.__traceback__)]
    files += [Path(file) for note in getattr(error, "__notes__", ()) for file in FRAME.findall(note)]
    for file in reversed(files):
        if file.is_relative_to(ROOT) and (parts := file.relative_to(ROOT).parts)[0] in PACKAGES:
            return f"{PAGE}#{'.'.join(parts)}"
    return None

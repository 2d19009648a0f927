"""The past whose concept jumps in May."""

from __future__ import annotations

import pytest

from tests.synthetic_past import Past, jumping_past


@pytest.fixture
def past() -> Past:
    return jumping_past()

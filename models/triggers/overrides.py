"""The overrides of the spec for a loop that the policy begins, as one could type them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from models.project_spec.blocks import Spec


def overrides(spec: Spec, champion: Mapping[str, Any] | None) -> list[str]:
    """`block.key=value` texts for a retraining, as `loopline run -s` takes them.

    Args:
        spec: The project's spec; its `retrain` block decides the start, the search, and the rows.
        champion: The settings that the champion's search found; None if there is no champion or no such settings.
    """
    settings = []
    if spec.retrain.start == "champion" and spec.train.start is None:
        settings.append("train.start.weights=champion")
    if spec.retrain.search == "reuse" and champion is not None:
        settings += ["search.trials=0", f"search.settings={json.dumps(dict(champion), sort_keys=True)}"]
    if spec.retrain.rows is not None:
        settings.append(f"data.newest={spec.retrain.rows}")
    return settings

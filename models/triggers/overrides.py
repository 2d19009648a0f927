"""The policy's changes of the spec for an automatic loop, as overrides that a user could type too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from models.project_spec.blocks import Spec


def overrides(spec: Spec, champion: Mapping[str, Any] | None) -> list[str]:
    """Return `block.key=value` texts for a retraining, in the form of `loopline run -s`.

    Args:
        spec: The project's spec; its `retrain` block sets the initial weights, a new search and the rows.
        champion: The settings from the champion's own search; None if there is no champion or it has no settings.
    """
    settings = []
    if spec.retrain.start == "champion" and spec.train.start is None:
        settings.append("train.start.weights=champion")
    if spec.retrain.search == "reuse" and champion is not None:
        settings += ["search.trials=0", f"search.settings={json.dumps(dict(champion), sort_keys=True)}"]
    if spec.retrain.rows is not None:
        settings.append(f"data.newest={spec.retrain.rows}")
    return settings

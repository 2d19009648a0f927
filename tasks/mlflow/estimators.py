"""What MLflow's users look for at the run and the version of an estimator: its class, its library and the version."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from models.nets.catalogue import full_row_of
from models.project_spec.references import estimators_among
from models.training.search_space import member_names


def estimator_tags(nets: Iterable[str], base: Path) -> dict[str, str]:
    """Return tags of the estimators among some nets, those of an ensemble with commas between; empty without one.

    `estimator_name` and `estimator_class` are what MLflow's own logging of scikit-learn writes.

    Args:
        nets: By their resolved names.
        base: The folder of the spec.
    """
    references = estimators_among(nets)
    if not references:
        return {}
    libraries = dict.fromkeys(name for net in references for name in full_row_of(net, base).libraries)
    return {
        "estimator_name": ", ".join(member_names(references)),
        "estimator_class": ", ".join(net if ".py:" in net else net.replace(":", ".") for net in references),
        "loopline.libraries": ", ".join(f"{name} {version(name)}" for name in libraries),
    }

"""442 patients with ten measurements each, from the installed package scikit-learn."""

from __future__ import annotations

import pandas as pd
from sklearn.datasets import load_diabetes


def load() -> pd.DataFrame:
    """One row a patient."""
    patients = load_diabetes(scaled=False)
    frame = pd.DataFrame(patients.data, columns=patients.feature_names).assign(progression=patients.target)
    frame.insert(0, "patient", [f"p-{number:03}" for number in range(len(frame))])
    return frame

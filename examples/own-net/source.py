"""569 tumours with 30 measurements each, from the installed package scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer


def load() -> pd.DataFrame:
    """One row a tumour; `malignant` is yes or no."""
    tumours = load_breast_cancer()
    names = [name.replace(" ", "_") for name in tumours.feature_names]
    return pd.DataFrame(tumours.data, columns=names).assign(malignant=np.where(tumours.target == 0, "yes", "no"))

"""ETS and ARIMA, one step ahead, in an environment of their own: `pip install statsmodels`.

    PYTHON_OF_THAT_ENVIRONMENT quality_forecasts.py FOLDER METHOD SEASON

FOLDER holds a file NUMBER-TESTS.npy for each series, all its steps in their order; predicted-NUMBER.npy, the last TESTS
steps, is written beside it. The parameters are fitted on the steps before; each step is then predicted from all before
it.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

MOST_SEASON = 24
"""Longer seasons take minutes and gigabytes in the state space of ARIMA."""


def main() -> None:
    """Fit on the steps before the tests, and predict each test step."""
    import numpy as np

    warnings.simplefilter("ignore")
    folder, predict, season = Path(sys.argv[1]), _ets if sys.argv[2] == "ets" else _arima, int(sys.argv[3])
    for path in folder.glob("[0-9]*-*.npy"):
        number, num_tests = path.stem.split("-")
        predicted = predict(np.load(path), int(num_tests), season if 1 < season <= MOST_SEASON else 0)
        np.save(folder / f"predicted-{number}.npy", predicted)


def _ets(values: object, num_tests: int, season: int) -> object:
    """Return the predictions of an additive, damped trend with an additive season."""
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel  # type: ignore[import-not-found]

    about = {"trend": "add", "damped_trend": True}
    about |= {"seasonal": "add", "seasonal_periods": season} if season else {}
    fitted = ETSModel(values[:-num_tests], **about).fit(disp=False)  # type: ignore[index]
    return ETSModel(values, **about).smooth(fitted.params).fittedvalues[-num_tests:]


def _arima(values: object, num_tests: int, season: int) -> object:
    """Return the predictions of the airline model of Box and Jenkins; without a season of ARIMA(1, 1, 1)."""
    from statsmodels.tsa.statespace.sarimax import SARIMAX  # type: ignore[import-not-found]

    order, seasonal = ((0, 1, 1), (0, 1, 1, season)) if season else ((1, 1, 1), (0, 0, 0, 0))
    fitted = SARIMAX(values[:-num_tests], order=order, seasonal_order=seasonal).fit(disp=False)  # type: ignore[index]
    return SARIMAX(values, order=order, seasonal_order=seasonal).filter(fitted.params).fittedvalues[-num_tests:]


if __name__ == "__main__":
    main()

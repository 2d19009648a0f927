"""Loopline in Python: train, judge and use a model from a frame, in a script or a notebook.

    import loopline

    result = loopline.run(customers, target="left", name="churn")
    model = loopline.load("churn")
    predictions = model.predict(more_customers)

The program `loopline` does the work in processes of its own, so this package needs nothing but Python, and fits beside
any version of pandas, polars or pyarrow. The program is the one on PATH, or that of the variable LOOPLINE_PROGRAM. The
workspace is found as by the commands: LOOPLINE_HOME, else the nearest one at or above the current folder.
"""

from loopline.calls import load, run
from loopline.errors import LooplineError
from loopline.results import Model, Result

__all__ = ["LooplineError", "Model", "Result", "load", "run"]

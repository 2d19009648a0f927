"""The ceiling: a server of one model that validates nothing, counts nothing and logs nothing.

`python -m tests.bench.plain_starlette FOLDER PORT`
"""

import sys
from pathlib import Path

import numpy as np
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models.inference.predict import session


def main(folder: Path, port: int) -> None:
    model = session(folder / "model.onnx")
    inputs = [(value.name, np.float64 if value.type == "tensor(double)" else object) for value in model.get_inputs()]
    outputs = [value.name for value in model.get_outputs()]

    async def invocations(request: Request) -> Response:
        rows = orjson.loads(await request.body())["dataframe_records"]
        feed = {name: np.array([row[name] for row in rows], dtype) for name, dtype in inputs}
        found = dict(zip(outputs, model.run(outputs, feed), strict=True))
        told = {name: values.tolist() for name, values in found.items()}
        return Response(orjson.dumps({"predictions": told}), media_type="application/json")

    app = Starlette(routes=[Route("/invocations", invocations, methods=["POST"])])
    uvicorn.run(app, port=port, access_log=False, log_level="warning", loop="uvloop", http="httptools", ws="none")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

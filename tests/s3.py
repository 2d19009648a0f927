"""An S3 server of a test's own: moto's, in threads of this process, on a free port."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

BUCKET = "lab"
KEYS = {"AWS_ACCESS_KEY_ID": "ada", "AWS_SECRET_ACCESS_KEY": "lovelace", "AWS_DEFAULT_REGION": "us-east-1"}


@contextlib.contextmanager
def s3(host: str = "127.0.0.1") -> Iterator[dict[str, str]]:
    """A server with an empty bucket; gives the environment by which its clients reach it."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=host, port=0, verbose=False)
    server.start()
    environ = {**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{server.get_host_and_port()[1]}"}
    try:
        client = boto3.client(
            "s3",
            endpoint_url=environ["AWS_ENDPOINT_URL"],
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            region_name=KEYS["AWS_DEFAULT_REGION"],
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield environ
    finally:
        server.stop()

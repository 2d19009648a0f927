"""Bodies of requests and responses: compressed or not, never larger than the server takes."""

import gzip
import random
import zlib

import pytest

from models.serving.http_errors import RequestError
from tasks.serve.bodies import LEAST_COMPRESSED, PIECE_BYTES, answered, content_of, kind_of

MOST = 10_000
PLAIN = b"loopline" * 200


def named(**headers: str) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def read(body: bytes, **headers: str) -> bytes:
    return content_of(named(**headers), body, MOST)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (PLAIN, {}),
        (PLAIN, {"content_encoding": "identity"}),
        (gzip.compress(PLAIN, mtime=0), {"content_encoding": "GZIP"}),
        (zlib.compress(PLAIN), {"content_encoding": "deflate"}),
        (b"".join(map(gzip.compress, (PLAIN[:7], b"", PLAIN[7:]))), {"content_encoding": "gzip"}),
    ],
)
def test_a_body_is_read_as_it_was_before_it_was_compressed(body: bytes, headers: dict[str, str]) -> None:
    assert read(body, **headers) == PLAIN


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (PLAIN, {"content_encoding": "br"}, 415),
        (PLAIN, {"content_encoding": "gzip"}, 400),
        (gzip.compress(PLAIN, mtime=0)[:-9], {"content_encoding": "gzip"}, 400),
        (gzip.compress(PLAIN, mtime=0) + b"and more", {"content_encoding": "gzip"}, 400),
        (gzip.compress(PLAIN, mtime=0) * 2 + gzip.compress(PLAIN, mtime=0)[:9], {"content_encoding": "gzip"}, 400),
        pytest.param(gzip.compress(bytes(MOST), mtime=0) * 1000, {"content_encoding": "gzip"}, 413, id="bombs"),
        pytest.param(gzip.compress(b"", mtime=0) * 200_000, {"content_encoding": "gzip"}, 400, id="empty gzips"),
        pytest.param(zlib.compress(b"") * 200_000, {"content_encoding": "deflate"}, 400, id="empty deflates"),
        pytest.param(bytes(MOST + 1), {}, 413, id="large"),
        pytest.param(gzip.compress(bytes(10**7), mtime=0), {"content_encoding": "gzip"}, 413, id="bomb"),
        (PLAIN, {"content_type": "text/plain; charset=utf-8"}, 415),
        (PLAIN, {"content_type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_a_body_that_is_not_read_says_why(body: bytes, headers: dict[str, str], status: int) -> None:
    with pytest.raises(RequestError) as refused:
        read(body, **headers)
    assert refused.value.status == status


def test_a_body_that_is_decompressed_in_pieces_is_whole() -> None:
    plain = random.Random(1).randbytes(3 * PIECE_BYTES)
    half = len(plain) // 2
    body = gzip.compress(plain[:half], mtime=0) + gzip.compress(plain[half:], mtime=0)
    assert content_of(named(content_encoding="gzip"), body, len(plain)) == plain
    assert content_of(named(content_encoding="deflate"), zlib.compress(plain), len(plain)) == plain


def test_a_type_is_known_without_its_parameters() -> None:
    assert kind_of(named(content_type="Text/CSV; charset=utf-8")) == "text/csv"
    assert kind_of({}) == ""


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("br, deflate, gzip", "deflate"),
        ("gzip;q=0, deflate;q=0.5", "deflate"),
        ("br", None),
        ("", None),
    ],
)
def test_a_large_answer_goes_compressed_to_who_takes_that(accepted: str, encoding: str | None) -> None:
    said = answered(named(accept_encoding=accepted), PLAIN, {})
    assert said.headers.get("content-encoding") == encoding
    assert said.headers["vary"] == "Accept-Encoding"
    windows = {"gzip": 31, "deflate": 15}
    assert (zlib.decompress(said.body, windows[encoding]) if encoding else said.body) == PLAIN


def test_a_small_answer_goes_as_it_is() -> None:
    said = answered(named(accept_encoding="gzip"), b"x" * (LEAST_COMPRESSED - 1), {"a": "b"})
    assert "content-encoding" not in said.headers
    assert said.headers["a"] == "b"

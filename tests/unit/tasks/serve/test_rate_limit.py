"""Each caller has a bucket, in whichever worker; of more callers than there is room for the latest."""

from pathlib import Path

import pytest

from models.serving.http_errors import RequestError
from tasks.release.shared_state import SharedNumber
from tasks.serve.rate_limit import NEAR, SLOTS, RateLimiter


@pytest.fixture(params=["alone", "shared"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "rates" if request.param == "shared" else None


def refused(buckets: RateLimiter, caller: str, now: float) -> RequestError:
    with pytest.raises(RequestError) as met:
        buckets.take(caller, now=now)
    return met.value


def test_each_caller_has_a_bucket_that_fills_again(path: Path | None) -> None:
    buckets = RateLimiter(2.0, path)
    for _ in range(2):
        buckets.take("a", now=10.0)
    said = refused(buckets, "a", 10.0)
    assert (said.status, said.headers["retry-after"]) == (429, "1")
    assert "more than 2 requests a second" in str(said)
    buckets.take("b", now=10.0)
    buckets.take("a", now=10.5)
    refused(buckets, "a", 10.5)


def test_a_bucket_holds_no_more_than_a_second(path: Path | None) -> None:
    buckets = RateLimiter(2.0, path)
    buckets.take("a", now=1.0)
    for _ in range(2):
        buckets.take("a", now=1000.0)
    refused(buckets, "a", 1000.0)


def test_less_than_one_a_second_is_said_with_how_long_to_wait(path: Path | None) -> None:
    buckets = RateLimiter(0.1, path)
    buckets.take("a", now=1.0)
    assert refused(buckets, "a", 2.0).headers["retry-after"] == "9"
    buckets.take("a", now=11.5)


def test_what_one_worker_took_another_has_not(tmp_path: Path) -> None:
    workers = [RateLimiter(3.0, tmp_path / "rates") for _ in range(3)]
    for worker in workers:
        worker.take("a", now=1.0)
    for worker in workers:
        refused(worker, "a", 1.0)
        worker.take("b", now=1.0)


def test_servers_divide_the_rate_and_one_alone_has_it_whole(path: Path | None, tmp_path: Path) -> None:
    num_servers = SharedNumber(tmp_path / "servers")
    buckets = RateLimiter(4.0, path, num_servers)
    for _ in range(4):
        buckets.take("a", now=10.0)
    assert "more than 4 requests a second: ask" in str(refused(buckets, "a", 10.0))
    num_servers.set(2)
    for _ in range(2):
        buckets.take("a", now=12.0)
    assert "more than 4 requests a second (2 at each of 2 servers): ask" in str(refused(buckets, "a", 12.0))
    num_servers.set(8)
    buckets.take("b", now=12.0)
    assert refused(buckets, "b", 12.0).headers["retry-after"] == "2", "half a request a second"


def test_any_number_of_callers_is_kept_apart_or_forgotten(path: Path | None) -> None:
    """A stranger who makes room for another begins anew: nobody is refused for what somebody else sent."""
    buckets, many = RateLimiter(1.0, path), 2 * SLOTS
    for caller in range(many):
        buckets.take(f"caller {caller}", now=1.0 + caller * 1e-6)
    for caller in range(many - NEAR, many):
        refused(buckets, f"caller {caller}", 1.1)


def test_a_bucket_fills_at_the_share_of_its_server(path: Path | None, tmp_path: Path) -> None:
    num_servers = SharedNumber(tmp_path / "servers")
    num_servers.set(2)
    buckets = RateLimiter(4.0, path, num_servers)
    for _ in range(2):
        buckets.take("a", now=10.0)
    buckets.take("a", now=10.5)
    refused(buckets, "a", 10.5)

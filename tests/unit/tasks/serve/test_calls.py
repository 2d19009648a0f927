"""What is asked, and the addresses where it is asked."""

from starlette.datastructures import Headers

from tasks.serve.calls import HttpRequest, HttpResponse, exact_endpoints, named


async def say(_: HttpRequest) -> HttpResponse:
    raise AssertionError


def test_of_headers_that_are_sent_twice_the_first_counts() -> None:
    raw = [(b"a", b"1"), (b"b", "\xe4".encode("latin-1")), (b"a", b"2")]
    assert named(raw) == {"a": Headers(raw=raw)["a"], "b": "\xe4"}


def test_addresses_have_the_names_of_models_put_in() -> None:
    found = exact_endpoints(
        {"/say": say, "/models/{name}/say": say, "/models/{name}/versions/{version}/say": say}, ["a", "b"]
    )
    assert found == {"/say": (say, {}), "/models/a/say": (say, {"name": "a"}), "/models/b/say": (say, {"name": "b"})}

"""Optuna's dashboard knows no login, so strangers' names and forms do not reach it, nor who lacks the secret."""

from typing import Any

import pytest

from tasks.tools.optuna_page import by_name, guarded

SECRET = "loopline:the-secret"
BASIC = "Basic bG9vcGxpbmU6dGhlLXNlY3JldA=="


def ask(method: str = "GET", **environ: str) -> str:
    statuses: list[str] = []

    def app(_: dict[str, Any], start: Any) -> list[bytes]:
        start("200 OK", [])
        return [b""]

    ours = {"HTTP_HOST": "127.0.0.1:4301", "REQUEST_METHOD": method, "PATH_INFO": "/", "HTTP_AUTHORIZATION": BASIC}
    list(guarded(app, SECRET)({**ours, **environ}, lambda status, _: statuses.append(status)))
    return statuses[0]


def test_our_own_page_and_links_to_it_pass() -> None:
    assert ask() == ask(HTTP_SEC_FETCH_SITE="same-site") == ask("POST", HTTP_SEC_FETCH_SITE="same-origin") == "200 OK"


@pytest.mark.parametrize("environ", [{"HTTP_HOST": "evil.example:4301"}, {"HTTP_HOST": ""}])
def test_a_strange_host_is_refused(environ: dict[str, str]) -> None:
    assert ask(**environ) == "403 Forbidden"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_form_of_another_page_is_refused(site: str) -> None:
    assert ask("DELETE", HTTP_SEC_FETCH_SITE=site) == "403 Forbidden"
    assert ask("DELETE", HTTP_ORIGIN="http://evil.example") == "403 Forbidden"
    assert ask("DELETE", HTTP_ORIGIN="http://127.0.0.1:4301") == "200 OK"


def test_who_lacks_the_secret_learns_no_more_than_that_it_is_up() -> None:
    assert ask(HTTP_AUTHORIZATION="") == ask(HTTP_AUTHORIZATION="Basic eDp5") == "401 Unauthorized"
    assert ask(HTTP_AUTHORIZATION="", PATH_INFO="/health") == "200 OK"


@pytest.mark.parametrize(("path", "place"), [("/study/t\u00fcr", "/dashboard/studies/1"), ("/study/no", "/dashboard/")])
def test_a_study_is_found_by_its_name(path: str, place: str) -> None:
    from optuna.storages import InMemoryStorage
    from optuna.study import StudyDirection

    storage, said = InMemoryStorage(), list[Any]()
    for name in ("other", "t\u00fcr"):
        storage.create_new_study([StudyDirection.MINIMIZE], name)
    app = by_name(lambda environ, start: [b"page"], storage)
    as_wsgi = path.encode().decode("latin-1")
    assert list(app({"PATH_INFO": as_wsgi}, lambda status, headers: said.append((status, dict(headers))))) == []
    assert said == [("302 Found", {"Location": place})]
    assert list(app({"PATH_INFO": "/dashboard/"}, lambda *_: None)) == [b"page"]

"""Addresses come from the environment, are checked, and are never repeated."""

from __future__ import annotations

import pytest

from models.errors import UsageError
from tasks.prefect.notifications import EMAIL, SLACK, TOPICS, WEBHOOK, wanted


def test_what_is_named_is_wanted() -> None:
    addresses = {SLACK: "https://hooks.slack.com/services/A/B/C", EMAIL: "mailtos://a:b@mail.example.org?to=c@d.org"}
    assert wanted({**addresses, "HOME": "/", WEBHOOK: ""}) == addresses


@pytest.mark.parametrize("name", [SLACK, EMAIL, WEBHOOK])
def test_another_kind_of_address_is_refused_without_telling_it(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: got another kind of address, expected one that begins with") as told:
        wanted({name: "ftp://s3cret"})
    assert "s3cret" not in str(told.value)


def test_every_topic_has_a_name_of_its_own() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)

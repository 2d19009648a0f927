"""What is printed of a release does not contradict what was just asked."""

from __future__ import annotations

import pytest

from flows.commands.release import _show
from models.serving.releases import Canary, ReleasePlan
from tasks.release.status import ReleaseStatus, VersionStatus


def printed(capsys: pytest.CaptureFixture[str], plan: ReleasePlan, *roles: tuple[str, str]) -> str:
    versions = [VersionStatus(version=version, role=role) for version, role in roles]
    _show(ReleaseStatus(project="tiny", champion="2", plan=plan, workers=1, versions=versions))
    return capsys.readouterr().out


def test_a_canary_that_was_ended_is_told_apart_from_one_that_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    ended = printed(capsys, ReleasePlan(), ("2", "stable"), ("3", "canary"), ("1", "previous"))
    assert ended.startswith("tiny: champion 2; workers here: 1\n")
    assert "the servers follow in a moment: as this was read they still tried version 3\n" in ended
    planned = printed(capsys, ReleasePlan(canary=Canary(version="3", share=0.5)), ("2", "stable"), ("3", "canary"))
    assert planned.startswith("tiny: champion 2, beside it 50% by version 3; workers here: 1\n")
    assert "in a moment" not in planned


def test_versions_that_are_not_tried_follow_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "in a moment" not in printed(capsys, ReleasePlan(), ("2", "stable"), ("1", "previous"), ("4", "returned"))

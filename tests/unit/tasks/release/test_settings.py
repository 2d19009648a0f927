"""What a server was started with reaches its workers as it was."""

from pathlib import Path

import pytest

from tasks.release.settings import VARIABLE, ServerSettings


def test_settings_come_out_of_the_environment_as_they_went_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    given = ServerSettings(
        "/w", ("a", "b"), port=1234, workers=3, names=("ml.example.org",), tls_cert="c.pem", rate=2.5
    )
    given.hand_on()
    assert ServerSettings.handed() == given


def test_each_project_has_its_place_and_each_port_its_metrics() -> None:
    given = ServerSettings("/w", ("a",), port=1234)
    assert given.state("a") == Path("/w/.loopline/projects/a")
    assert given.release_path("a") == given.state("a") / "serving" / "release.json"
    assert given.metrics_folder.name == "metrics-1234"

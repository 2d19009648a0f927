"""The light says first what a person should hear first."""

import pytest

from models.report.facts import DiskUsage, IngestSummary, LastLoop, PendingApproval, ServiceSummary
from models.report.light import light, workspace_light
from models.serving.registry import RegisteredVersion
from models.triggers.signal import Signal
from tests.told_facts import NOW, facts, findings, verdict, window

GB = 10**9
ASKED = Signal(id="s", kind="person", at=NOW, reason="Ada asked")
ROOM = DiskUsage(free_bytes=50 * GB, total_bytes=100 * GB)


def test_a_champion_that_nobody_watches_is_green_by_its_verdict() -> None:
    told = light(facts())
    assert (told.colour, told.reason) == (
        "green",
        "champion 2 holds its verdict (roc_auc 0.73, 0.72 to 0.74); not watched yet",
    )


def test_a_champion_that_a_person_promoted_against_its_verdict_does_not_hold_it() -> None:
    refused = verdict(decision="keep", reasons=["Not promoted. Refused by: champion"])
    told = light(facts(champion=RegisteredVersion(number="3", verdict=refused)))
    assert (told.colour, told.reason) == (
        "amber",
        "champion 3 was promoted by hand against its verdict (Not promoted. Refused by: champion); not watched yet",
    )


def test_what_monitoring_found_decides_once_it_looked() -> None:
    told = light(facts(monitor=findings(window(1), reason="roc_auc 0.71 holds")))
    assert (told.colour, told.reasons) == ("green", ["roc_auc 0.71 holds"])


def test_a_decayed_champion_is_red_and_every_other_trouble_follows() -> None:
    monitor = findings(window(1), state="red", reason="roc_auc 0.65 is under 0.72")
    waiting = PendingApproval(flow_run="x", reason="rows came", since=NOW, until=NOW + 9)
    told = light(facts(monitor=monitor, waiting=waiting, loop=LastLoop(state="killed", loop_id="l-1", step="train")))
    assert told.colour == "red"
    assert told.reasons[0] == "roc_auc 0.65 is under 0.72"
    assert "l-1 was killed at train: a run continues it" in told.reasons[1]
    assert "rows came" in told.reasons[2]


def test_findings_of_another_version_say_nothing_of_the_champion() -> None:
    told = light(facts(monitor=findings(window(1), champion="1", state="red", reason="version 1 decayed")))
    assert told.colour == "green"


def test_monitoring_without_a_whole_window_yet_says_so() -> None:
    told = light(facts(monitor=findings(reason="version 2 has no whole window yet")))
    assert told.colour == "green"
    assert told.reason.endswith("0.72 to 0.74); version 2 has no whole window yet")


@pytest.mark.parametrize(
    ("told", "colour", "words"),
    [
        ({"error": "project.yaml:3: data.sorce: unknown"}, "red", "project.yaml:3"),
        (
            {"data": IngestSummary(status="rejected", failing=["delay: too long (3 rows break it)"])},
            "red",
            "delay: too long",
        ),
        ({"data": IngestSummary(status="warned", failing=["sex: nulls"])}, "amber", "sex: nulls"),
        (
            {"data": IngestSummary(feedback={"joined": 94, "unfit": 5, "rejected": 1})},
            "amber",
            "5 do not fit the source's columns",
        ),
        ({"loop": LastLoop(state="failed", loop_id="l-2", step="train")}, "amber", "loop l-2 failed at train"),
        (
            {"loop": LastLoop(state="failed", loop_id="l-2", step="train", failure="loss is NaN: lower train.lr")},
            "amber",
            "loop l-2 failed at train: loss is NaN: lower train.lr",
        ),
        (
            {"loop": LastLoop(state="rejected", loop_id="l-2", step="ingest", failure="no column 'y'")},
            "red",
            "l-2: the data was rejected at ingest: no column 'y'",
        ),
        ({"undecided": [ASKED]}, "amber", "asked at 2027-01-15 08:00 UTC, not decided yet: Ada asked"),
        ({"undecided": [ASKED, ASKED]}, "amber", "Ada asked (and 1 more)"),
        ({"champion": None}, "amber", "there is no champion"),
        ({"champion": None, "loop": LastLoop()}, "amber", "no loop was run yet"),
    ],
)
def test_what_waits_for_a_person_is_not_green(told: dict, colour: str, words: str) -> None:
    lit = light(facts(**told))
    assert lit.colour == colour
    assert words in lit.reason


def test_every_line_of_a_broken_spec_is_a_reason() -> None:
    assert light(facts(error="line 1: wrong\nline 2: wrong too")).reasons == ["line 1: wrong", "line 2: wrong too"]


def test_data_that_merely_drifts_needs_nobody() -> None:
    assert (
        light(facts(data=IngestSummary(status="warned", drifting=["distance: column kl divergence"]))).colour == "green"
    )


def test_rejected_data_is_not_told_twice_as_a_failed_loop() -> None:
    told = light(facts(data=IngestSummary(status="rejected"), loop=LastLoop(state="failed", loop_id="l-3")))
    assert told.reasons == ["the last data was rejected"]


def test_a_workspace_is_as_well_as_its_worst_project() -> None:
    red = facts(name="churn", error="broken")
    assert workspace_light([facts()], {}, ROOM).reason == "every project is well"
    told = workspace_light([facts(), red, facts(name="mnist", champion=None)], {}, ROOM)
    assert (told.colour, told.reasons) == ("red", ["churn needs a person now", "mnist needs a person"])
    many = workspace_light([facts(name=f"p{number}", champion=None) for number in range(30)], {}, ROOM)
    assert many.reason == "p0, p1, p2, p3, p4, p5, p6, p7 and 22 more need a person"


def test_an_empty_workspace_says_how_to_begin() -> None:
    assert "loopline new" in workspace_light([], {}, ROOM).reason


@pytest.mark.parametrize(("free", "colour"), [(1.5, "amber"), (0.4, "red"), (2.5, "green")])
def test_a_nearly_full_disk_is_said_before_it_is_full(free: float, colour: str) -> None:
    assert workspace_light([facts()], {}, DiskUsage(free_bytes=int(free * GB), total_bytes=100 * GB)).colour == colour


def test_a_service_that_does_not_stay_up_is_named() -> None:
    services = {"worker": ServiceSummary(state="failed", detail="exited 1"), "mlflow": ServiceSummary(state="stopped")}
    told = workspace_light([facts()], services, ROOM)
    assert (told.colour, told.reasons) == ("red", ["the service worker is failed: exited 1"])


def test_few_labelled_predictions_that_cannot_be_used_are_no_alarm():
    assert light(facts(data=IngestSummary(feedback={"joined": 95, "unfit": 5}))).colour == "green"

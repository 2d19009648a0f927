from models.monitoring.report import MonitoringReport
from models.project_spec.monitor_and_retrain import Monitor
from models.report.monitoring import ADVICE, render_monitoring
from tests.unit.models.monitoring.conftest import DAY, breach, decayed, drift, well, window


def test_a_champion_that_does_well() -> None:
    page = render_monitoring(well().model_copy(update={"reason": "nothing unusual"}), Monitor())
    assert "Nothing unusual" in page
    assert 'class="light green"' in page
    assert "<script" not in page
    assert page.count("data:image/svg+xml") == 2


def test_what_is_wrong_comes_first_with_what_to_do() -> None:
    features = [
        drift("temp", 0.5, "strong"),
        drift("<b>", 0.1, "warn"),
        drift("hour", 0.9).model_copy(update={"seasonal": True}),
    ]
    ill = [decayed(number, breaches=[breach()], features=features) for number in range(2)]
    told = well().model_copy(
        update={
            "windows": ill,
            "state": "red",
            "reason": "distance: 40 % of the values over 6000",
            "notes": ["A note."],
        }
    )
    page = render_monitoring(told, Monitor())
    assert 'class="light red"' in page
    assert ADVICE["broken_data"].split("`")[0] in page
    for words in ("A note.", "drifts far", "seasonal", "0.63 to 0.67", "0.72 to 0.74", "&lt;b&gt;"):
        assert words in page
    assert "<b>" not in page.replace("<b>distance", "").split("<h3>Features</h3>")[1].split("</table>")[0]


def test_nothing_predicted_yet_and_a_window_that_fills() -> None:
    empty = MonitoringReport(project="new", at=3 * DAY, reason="there is no champion to monitor")
    assert "There is no champion to monitor" in render_monitoring(empty, Monitor())
    filling = empty.model_copy(update={"windows": [window(0, whole=False)], "champion": "1"})
    assert "fills" in render_monitoring(filling, Monitor())

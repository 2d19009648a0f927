from models.monitoring.report import MonitoringReport
from tests.unit.models.monitoring.conftest import drift, window


def test_findings_are_json_and_back(findings: MonitoringReport) -> None:
    assert MonitoringReport.model_validate_json(findings.model_dump_json()) == findings


def test_only_whole_windows_of_the_champion_count(findings: MonitoringReport) -> None:
    others = [window(2, version="2"), window(3, whole=False)]
    told = findings.model_copy(update={"windows": [*findings.windows, *others]})
    assert [one.id for one in told.of_champion()] == ["1/0", "1/1"]


def test_a_window_drifts_when_its_predictions_do(findings: MonitoringReport) -> None:
    assert window(0, predictions=[drift(level="warn")]).drifted
    assert not window(0, features=[drift("temp", 0.9, "strong")]).drifted

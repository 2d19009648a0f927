from models.monitoring.alarms import overall, signals
from models.monitoring.report import MonitoringReport
from models.project_spec.monitor_and_retrain import Monitor
from tests.unit.models.monitoring.conftest import breach, decayed, drift, window

TWO_OF_TWO = Monitor()
TWO_OF_THREE = Monitor(alarms=2, of=3)


def with_windows(findings: MonitoringReport, *windows: object) -> MonitoringReport:
    return findings.model_copy(update={"windows": list(windows)})


def test_all_well_asks_for_nothing(findings: MonitoringReport) -> None:
    assert signals(findings, TWO_OF_TWO) == []
    assert overall(findings, TWO_OF_TWO) == ("green", "as at its promotion")


def test_the_order_is_that_of_worth(findings: MonitoringReport) -> None:
    ill = {"breaches": [breach()], "predictions": [drift(psi=0.3, level="strong")]}
    told = with_windows(findings, decayed(0, **ill), decayed(1, **ill))
    assert [signal.kind for signal in signals(told, TWO_OF_TWO)] == ["broken_data", "decay", "drift"]
    assert overall(told, TWO_OF_TWO) == (
        "red",
        "2 of the last 2 windows: distance: 40 % of the values over 6000",
    )


def test_drift_of_features_alone_never_asks(findings: MonitoringReport) -> None:
    ill = {"features": [drift("temp", 3.0, "strong")], "state": "amber", "reason": "temp drifts"}
    told = with_windows(findings, *(window(number, **ill) for number in range(9)))
    assert signals(told, TWO_OF_TWO) == []
    assert overall(told, TWO_OF_TWO) == ("amber", "temp drifts")


def test_one_bad_window_of_two_is_not_enough_but_shows(findings: MonitoringReport) -> None:
    told = with_windows(findings, window(0), window(1, breaches=[breach()], state="red", reason="worse"))
    assert signals(told, TWO_OF_TWO) == []
    assert overall(told, TWO_OF_TWO) == ("amber", "worse")


def test_two_of_three_count_only_while_the_last_alarms(findings: MonitoringReport) -> None:
    broken = {"breaches": [breach()]}
    rising = with_windows(findings, window(0, **broken), window(1), window(2, **broken))
    assert [signal.kind for signal in signals(rising, TWO_OF_THREE)] == ["broken_data"]
    mended = with_windows(findings, window(0, **broken), window(1, **broken), window(2))
    assert signals(mended, TWO_OF_THREE) == []


def test_decay_is_one_test_over_several_windows_and_counts_only_while_the_last_alarms(
    findings: MonitoringReport,
) -> None:
    found = with_windows(findings, window(0), decayed(1))
    assert [signal.kind for signal in signals(found, TWO_OF_TWO)] == ["decay"]
    mended = with_windows(findings, decayed(0), decayed(1), window(2, realised={"value": 0.73}))
    assert signals(mended, TWO_OF_TWO) == []


def test_windows_without_labels_do_not_hide_a_decay(findings: MonitoringReport) -> None:
    told = with_windows(findings, decayed(0), decayed(1), window(2), window(3))
    (signal,) = signals(told, TWO_OF_TWO)
    assert signal.kind == "decay"
    assert signal.reason == "roc_auc 0.65 (0.63 to 0.67) on 900 labels, promoted with 0.73 (0.72 to 0.74)"
    assert signal.evidence["windows"] == ["1/1"]
    pool = {"pooled": {"value": 0.66, "low": 0.65, "high": 0.67}, "num_pooled": 3}
    (signal,) = signals(with_windows(findings, decayed(0), decayed(1, **pool)), TWO_OF_TWO)
    assert signal.reason.startswith("roc_auc 0.66 (0.65 to 0.67) over the last 3 windows, promoted with")


def test_a_signal_is_the_same_however_often_it_is_looked_at(findings: MonitoringReport) -> None:
    told = with_windows(findings, decayed(0), decayed(1))
    later = told.model_copy(update={"at": told.at + 900})
    assert signals(told, TWO_OF_TWO)[0].id == signals(later, TWO_OF_TWO)[0].id
    more = with_windows(findings, decayed(0), decayed(1), decayed(2))
    assert signals(more, TWO_OF_TWO)[0].id != signals(told, TWO_OF_TWO)[0].id


def test_no_champion_and_no_window_are_said(findings: MonitoringReport) -> None:
    assert overall(MonitoringReport(project="x", at=0.0), TWO_OF_TWO) == ("green", "there is no champion to monitor")
    young = with_windows(findings, window(0, whole=False))
    young = young.model_copy(update={"num_predictions": 3, "num_labels": 0})
    told = "version 1 has no whole window yet (3 predictions so far)"
    assert overall(young, TWO_OF_TWO)[1] == told
    labelled = young.model_copy(update={"num_labels": 1})
    assert overall(labelled, TWO_OF_TWO)[1] == told.replace("predictions", "predictions, 1 labelled,")

import pyarrow as pa

from models.monitoring.contract import bounds_of, breaches
from models.monitoring.report import ContractBreach
from models.monitoring.tally import tally
from models.project_spec.blocks import Data
from models.project_spec.monitor_and_retrain import Monitor
from tests.unit.models.monitoring.conftest import logged, reference, rows

WATCH = Monitor()
DATA = Data(source="x.csv", target="late")


def found(table: pa.Table, data: Data = DATA, monitor: Monitor = WATCH) -> list[ContractBreach]:
    bounds = bounds_of(reference().columns, data, monitor.seasonal)
    return breaches(tally(logged(table), reference(), bounds), reference().columns, monitor, bounds)


def expecting(**arguments: object) -> Data:
    told = {"expect": "expect_column_values_to_be_between", "arguments": {"column": "wind", **arguments}}
    return Data.model_validate({"source": "x.csv", "target": "late", "expectations": [told]})


def test_rows_like_those_of_training_keep_the_contract() -> None:
    assert [found(rows(1000, seed=seed)) for seed in range(3, 13)] == [[]] * 10


def test_another_unit_is_out_of_range() -> None:
    table = rows(1000)
    wind = table.column("wind").to_numpy() * 60
    (breach,) = [one for one in found(table.set_column(0, "wind", [wind])) if one.column == "wind"]
    assert breach.kind == "range"
    assert breach.share > 0.5
    assert breach.reason.startswith("wind: ")


def test_a_range_that_the_spec_declares_comes_first() -> None:
    (breach,) = found(rows(1000), expecting(min_value=0, max_value=50))
    assert (
        breach.reason
        == f"wind: {100 * breach.share:.3g} % of the values are out of range, expected at least 0 and at most 50"
    )
    assert found(rows(1000), expecting(min_value=0, mostly=0.4)) == []
    warns = expecting(min_value=0).model_dump()
    warns["expectations"][0]["severity"] = "warn"
    assert found(rows(1000), Data.model_validate(warns)) == []


def test_a_range_from_which_the_extremes_of_personal_data_follow_is_not_named() -> None:
    bounds = bounds_of(reference().columns, DATA)
    far = rows(1000).set_column(0, "wind", [rows(1000).column("wind").to_numpy() + 60])
    counted = tally(logged(far), reference(), bounds)
    reasons = [breach.reason for breach in breaches(counted, reference().columns, WATCH, bounds, shows_values=False)]
    assert reasons == ["wind: 100 % of the values are out of range"]


def test_a_few_records_are_no_breach_and_a_seasonal_column_has_no_range_of_its_own() -> None:
    table = rows(1000)
    wind = table.column("wind").to_numpy().copy()
    wind[:4] = 1e6
    assert found(table.set_column(0, "wind", [wind])) == []
    wind[:] = 1e6
    assert found(table.set_column(0, "wind", [wind]), monitor=Monitor(seasonal=["wind", "gust"])) == []


def test_missing_values_that_become_more_are_a_breach() -> None:
    (breach,) = found(rows(1000, nulls=0.1))
    assert (breach.column, breach.kind, breach.expected) == ("wind", "nulls", 0.0)
    assert found(rows(1000, nulls=0.015)) == []


def test_categories_that_training_never_saw_are_a_breach() -> None:
    table = rows(1000)
    colour = table.column("colour").to_pylist()
    colour[:20] = ["violet"] * 20
    (breach,) = found(table.set_column(2, "colour", [colour]))
    assert (breach.column, breach.kind, breach.share) == ("colour", "categories", 0.02)
    colour[4:20] = ["red"] * 16
    assert found(table.set_column(2, "colour", [colour])) == []


def test_nothing_predicted_breaks_nothing() -> None:
    assert found(rows(0)) == []


def test_all_ranges_of_a_column_hold_and_one_under_a_condition_is_none() -> None:
    def data(*arguments: dict[str, object]) -> Data:
        between = "expect_column_values_to_be_between"
        expectations = [{"expect": between, "arguments": {"column": "wind", **one}} for one in arguments]
        return Data.model_validate({"source": "x.csv", "target": "late", "expectations": expectations})

    columns = reference().columns
    both = data({"min_value": 0}, {"max_value": 50}, {"min_value": -10, "max_value": 40})
    assert bounds_of(columns, both)["wind"] == (0, 40)
    conditioned = data({"min_value": 0, "row_condition": "rain > 0", "condition_parser": "pandas"})
    assert bounds_of(columns, conditioned)["wind"] == bounds_of(columns, DATA)["wind"]

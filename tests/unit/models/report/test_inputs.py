"""The card names each input with its kind and with what the model knows of it."""

from models.data.preparation import Preparation, TextInput
from models.data.target_encoding import TargetEncoding
from models.fitted_features.lookup import Lookup
from models.inputs.categorical.record import CategoricalInput
from models.inputs.datetime.record import DatetimeInput
from models.inputs.fitted.record import FittedInput
from models.inputs.gap.record import GapInput
from models.inputs.numeric.record import NumericInput
from models.inputs.score.record import ScoreInput
from models.inputs.target_mean.record import TargetMeanInput
from models.inputs.text.record import TextColumn
from models.report.inputs import input_rows

INPUTS = [
    NumericInput(name="n", fill=0.0, shift=1.5, scale=2.0),
    GapInput(name="n is missing", of="n"),
    ScoreInput(name="rank of n", of="n", knots=[0.5, 90.0], scores=[-2.0, 2.0]),
    TargetMeanInput(name="y by c", of="c", levels=["u", "v"], values=[0.0, 1.0, -1.0]),
    FittedInput(name="f", fill=0.0),
    CategoricalInput(name="c", categories=["u", "v"]),
    DatetimeInput(name="d", cycles=["day", "week"], trend=True, low=0.0, high=1.0, shift=0.0, scale=1.0),
    TextColumn(name="t", num_terms=1200, num_features=3, length=8),
]
TABLE = Preparation(kind="table", task="regression", target=TargetEncoding(name="y"), inputs=INPUTS)


def values(preparation: Preparation) -> dict[str, tuple[str, str]]:
    return {row["input"]: (row["kind"], row["values"]) for row in input_rows(preparation)}


def test_each_input_has_a_row_with_its_summary() -> None:
    lookup = Lookup(name="f", column="c", keys=["u", "v"], values=[0.0, 1.0])
    assert values(TABLE.model_copy(update={"lookups": [lookup]})) == {
        "n": ("numeric", "centre 1.5, scale 2"),
        "n is missing": ("gap", "1 where n has no value"),
        "rank of n": ("score", "normal score of the rank of n, from 0.5 to 90"),
        "y by c": ("target_mean", "mean of the target in each of 2 levels of c"),
        "f": ("fitted", "2 values of c; centre 0, scale 1"),
        "c": ("categorical", "2 categories"),
        "d": ("datetime", "day, week, trend"),
        "t": ("text", "1,200 n-grams, 3 features, the first 8 words"),
    }


def test_a_feature_of_a_transform_names_no_column() -> None:
    made = values(TABLE.model_copy(update={"transform": b"graph"}))
    assert made["f"] == ("fitted", "transform; centre 0, scale 1")


def test_a_text_of_characters_is_one_input() -> None:
    characters = TextInput(column="line", length=8, stride=8, alphabet="abc")
    target = TargetEncoding(name="the next character")
    text = Preparation(kind="text", task="language", target=target, characters=characters)
    assert values(text) == {"line": ("text", "3 characters, windows of 8")}

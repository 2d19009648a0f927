"""Files that a release before version 2 wrote are read; `preparations_of_version_1` holds some, as `prepare` did."""

import json
from pathlib import Path

import pytest

from models.data.preparation import PREPARATION_FILE, Preparation
from models.inputs.image.record import ImageInput
from models.inputs.numeric.record import NumericInput
from models.project_spec.blocks import Image

FOLDER = Path(__file__).parent / "preparations_of_version_1"


def test_a_table_with_every_kind_of_column_is_read() -> None:
    stored = (FOLDER / "table.json").read_text()
    old, preparation = json.loads(stored), Preparation.model_validate_json(stored)
    kinds = ["numeric", "numeric", "fitted", "categorical", "categorical", "datetime", "text"]
    assert [part.kind for part in preparation.inputs] == kinds
    names = {"numeric": "numeric", "fitted": "fitted", "categorical": "categorical", "datetimes": "datetime"}
    for field, kind in {**names, "texts": "text"}.items():
        read = [part.model_dump(exclude={"kind", "form"}) for part in preparation.inputs if part.kind == kind]
        assert [{**part, "source": None, "ahead": 0} if kind == "fitted" else part for part in read] == old[field]
    assert preparation.columns == ["number", "count", "day", "city", "flag", "note"]
    assert preparation.lookups[0].name == "city_mean"
    assert preparation.version == 2


def test_series_and_images_are_read() -> None:
    series = Preparation.model_validate_json((FOLDER / "series.json").read_text())
    assert [(part.name, part.ahead) for part in series.of(NumericInput)][-2:] == [("promo_h1", 1), ("promo_h2", 2)]
    image = Preparation.model_validate_json((FOLDER / "image.json").read_text())
    (part,) = image.of(ImageInput)
    assert part.name == "image"
    assert part.image == Image(height=2, width=2, channels=3)


@pytest.mark.parametrize("name", ["table", "series", "image"])
def test_an_earlier_file_is_stored_in_the_form_of_today(name: str, tmp_path: Path) -> None:
    (tmp_path / PREPARATION_FILE).write_text((FOLDER / f"{name}.json").read_text())
    preparation = Preparation.load_schema(tmp_path)
    preparation.save(tmp_path)
    assert Preparation.load_schema(tmp_path) == preparation
    assert json.loads((tmp_path / PREPARATION_FILE).read_text())["version"] == 2


def test_a_file_from_before_there_were_texts_is_read() -> None:
    stored = json.loads((FOLDER / "image.json").read_text())
    for field in ("datetimes", "texts", "fitted", "lookups"):
        del stored[field]
    assert [part.kind for part in Preparation.model_validate(stored).inputs] == ["image"]

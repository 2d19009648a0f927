from models.data.preparation import CategoricalInput, ImageInput, NumericInput, Preparation, TargetEncoding
from models.nets.sizes import Sizes
from models.project_spec.blocks import Image
from models.project_spec.window import Window


def test_sizes_of_a_table():
    preparation = Preparation(
        kind="table",
        task="multiclass",
        target=TargetEncoding(name="y", classes=["a", "b", "c"]),
        numeric=[NumericInput(name="x", fill=0.0)],
        categorical=[CategoricalInput(name="c", categories=["u", "v"])],
    )
    sizes = Sizes.of(preparation)
    assert (sizes.num_numeric, sizes.cardinalities, sizes.num_outputs) == (1, (3,), 3)
    assert sizes.inputs == {"numeric": (1,), "categorical": (1,)}


def test_sizes_of_images_and_series():
    pixels = ImageInput(image=Image(height=4, width=5, channels=3), mean=[0.0] * 3, std=[1.0] * 3)
    image = Preparation(kind="image", task="binary", target=TargetEncoding(name="y", classes=["a", "b"]), pixels=pixels)
    assert Sizes.of(image).inputs == {"image": (3, 4, 5)}
    assert Sizes.of(image).num_outputs == 1
    numeric = [NumericInput(name="x", fill=0.0), NumericInput(name="z", fill=0.0)]
    series = Preparation(
        kind="series", task="regression", target=TargetEncoding(name="y"), numeric=numeric, window=Window(length=7)
    )
    assert Sizes.of(series).inputs == {"series": (7, 2)}

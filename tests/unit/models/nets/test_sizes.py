from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.inputs.categorical.record import CategoricalInput
from models.inputs.image.record import ImageInput
from models.inputs.numeric.record import NumericInput
from models.inputs.text.record import TextColumn, word_offsets
from models.nets.sizes import Sizes
from models.project_spec.blocks import Image
from models.project_spec.window import Window


def test_sizes_of_a_table():
    preparation = Preparation(
        kind="table",
        task="multiclass",
        target=TargetEncoding(name="y", classes=["a", "b", "c"]),
        inputs=[NumericInput(name="x", fill=0.0), CategoricalInput(name="c", categories=["u", "v"])],
    )
    sizes = Sizes.of(preparation)
    assert (sizes.num_numeric, sizes.cardinalities, sizes.num_outputs) == (1, (3,), 3)
    assert sizes.inputs == {"numeric": (1,), "categorical": (1,)}


def test_words_are_an_input_of_nets_that_read_them():
    texts = [
        TextColumn(name="a", num_terms=9, num_features=3, length=8, words=list("abcde"), stems=["f", "g"]),
        TextColumn(name="b", num_terms=9, num_features=3, length=20, words=list("abcdefg")),
    ]
    target = TargetEncoding(name="y", classes=["a", "b"])
    preparation = Preparation(kind="table", task="binary", target=target, inputs=[*texts])
    for net in ("transformer", "./own.py:Net"):
        sizes = Sizes.of(preparation, net)
        assert sizes.inputs == {"numeric": (6,), "categorical": (0,), "words": (28, 2)}
        assert sizes.for_net()["vocabularies"] == (14, 4)
    assert Sizes.of(preparation, "mlp").inputs == {"numeric": (6,), "categorical": (0,)}
    assert word_offsets(preparation.texts) == [(0, 0), (5, 2)]


def test_sizes_of_images_and_series():
    pixels = ImageInput(name="image", image=Image(height=4, width=5, channels=3), mean=[0.0] * 3, std=[1.0] * 3)
    image = Preparation(
        kind="image", task="binary", target=TargetEncoding(name="y", classes=["a", "b"]), inputs=[pixels]
    )
    assert Sizes.of(image).inputs == {"image": (3, 4, 5)}
    assert Sizes.of(image).num_outputs == 1
    numeric = [NumericInput(name="x", fill=0.0), NumericInput(name="z", fill=0.0)]
    series = Preparation(
        kind="series", task="regression", target=TargetEncoding(name="y"), inputs=[*numeric], window=Window(length=7)
    )
    assert Sizes.of(series).inputs == {"series": (7, 2)}

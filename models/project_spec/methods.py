"""The blocks of `train` that each turn on one training method; docs/how-to/training.md describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator

from models.project_spec.block import Fraction, NumberText, OwnFunction, Reference, SpecBlock, Whole
from models.project_spec.image_and_text import Image
from models.project_spec.references import ALIASES
from models.project_spec.search import Dimension

Optimiser = Literal["adamw", "adam", "sgd", "rmsprop", "adagrad", "nadam", "radam", "adafactor", "muon"]
Schedule = Literal["constant", "linear", "cosine", "restarts", "one_cycle", "step", "exponential", "plateau"]
Share = Annotated[float, Field(ge=0, lt=1)]


_KINDS_OF = {"noise": ("table", "series"), "swap": ("table",), "function": ("image", "table", "series")}
"""The kinds of data of the augmentations that are not for images alone."""


class Augment(SpecBlock):
    """Augmentation of training examples; their labels stay valid. Zero is off."""

    rotate_degrees: float = Field(0.0, ge=0, le=180, description="Images: largest rotation, either way.")
    shift_pixels: Whole = Field(0, ge=0, description="Pixels, at most, in each direction.")
    brightness: float = Field(0.0, ge=0, lt=1, description="Share by which pixels get brighter or darker, at most.")
    flip: bool = Field(False, description="Images: flip half of them horizontally.")
    erase: float = Field(0.0, ge=0, le=1, description="Images: share in which a random rectangle is erased.")
    mixup_alpha: float = Field(
        0.0, ge=0, description="Parameter of the beta distribution that mixes two examples; 0: none."
    )
    noise: float = Field(0.0, ge=0, description="Tables and series: noise added to numbers, in standard deviations.")
    swap: Share = Field(
        0.0, description="Tables: share of the values that are swapped with those of another row of the batch."
    )
    function: OwnFunction | None = Field(
        None,
        description="Your own function of a training batch, called after the others; it returns the same shapes. "
        "Images: float32 (batch, channel, height, width) in [0, 1]. Tables and series: a dict of columns.",
    )

    def check_kind(self, kind: str, space: Mapping[str, Dimension] | None) -> None:
        """Refuse an augmentation, set or searched, that does nothing to this kind of data.

        Args:
            kind: The kind of data.
            space: `search.space`; the choices of its `train.augment` are whole blocks.

        Raises:
            ValueError: Names the key, the kinds that it is for, and the cure.
        """
        path = "train.augment"
        self._refuse_idle(kind, path)
        dimension = (space or {}).get(path)
        if dimension is None:
            return
        for choice in dimension.choices or ["a range"]:
            try:
                searched = Augment.model_validate(choice)
            except ValidationError as error:
                detail = error.errors()[0]
                key = ".".join(map(str, detail["loc"]))
                raise ValueError(
                    f"search.space.{path}: got {choice!r}, expected `choices` of blocks, such as {{noise: 0.1}}: "
                    f"{key}{': ' * bool(key)}{detail['msg']}"
                ) from error
            searched._refuse_idle(kind, f"search.space.{path}")

    def _refuse_idle(self, kind: str, path: str) -> None:
        for name, value in self.model_dump().items():
            kinds = _KINDS_OF.get(name, ("image",))
            if value and kind not in kinds:
                raise ValueError(
                    f"{path}.{name} is for data of kind {' or '.join(kinds)}, but data.kind is {kind}: remove it"
                )


class Start(SpecBlock):
    """Initial weights from an earlier model, and the layers that are frozen."""

    weights: NumberText = Field(
        "champion",
        min_length=1,
        description="champion, previous, a version number, or the path of a safetensors file. No champion yet, or one "
        "that is another model: fresh.",
    )
    freeze: list[Reference] = Field(
        default_factory=list, description="Layers that are not trained, by name or pattern: `trunk.0`, `embeddings.*`."
    )
    lr_scale: dict[str, float] = Field(
        default_factory=dict, description="Pattern of layers -> their learning rate as a share of train.lr."
    )
    partial: bool = Field(
        False, description="Initialise layers that do not fit at random. Default: such layers are an error."
    )

    @property
    def needs_net(self) -> bool:
        """Whether it needs a net: layers are named, or weights of a net; the model of an alias may be of any family."""
        return bool(self.freeze or self.lr_scale) or self.weights not in ALIASES

    @field_validator("lr_scale")
    @classmethod
    def _positive(cls, value: dict[str, float]) -> dict[str, float]:
        for pattern, scale in value.items():
            if not scale > 0:
                raise ValueError(f"lr_scale of {pattern!r}: got {scale:g}, expected > 0: to hold layers use `freeze`")
        return value


class Recent(SpecBlock):
    """Train on the newest rows and a sample of the older ones, so that the old ones are not forgotten."""

    share: Fraction = Field(0.2, description="Newest share of the training rows, all of which are trained on.")
    replay: Share = Field(0.1, description="Share of the older rows, drawn by seed, mixed in among them.")


class Pretrain(SpecBlock):
    """Self-supervised pretraining: parts of the inputs are masked, and the net's trunk learns to reconstruct them."""

    epochs: Whole = Field(10, ge=1, description="Passes of the pretraining.")
    mask: Fraction = Field(0.3, description="Share of the columns, or of an image's patches, that is hidden.")
    lr: float | None = Field(None, gt=0, description="Default: train.lr.")
    patch: Whole = Field(4, ge=1, description="Side of an image's patches.")

    def check_patch(self, image: Image | None) -> None:
        """Refuse patches that are larger than an image.

        Raises:
            ValueError: Names the patch and the image's sides.
        """
        if image is not None and self.patch > max(image.height, image.width):
            raise ValueError(
                f"train.pretrain.patch: got {self.patch}, expected at most the longer side of an image, which has "
                f"{image.height} x {image.width} pixels"
            )


class PseudoLabels(SpecBlock):
    """A teacher labels rows without a label (data.unlabelled) where it is confident; the student trains on both."""

    confidence: float = Field(0.95, gt=0.5, lt=1, description="Least predicted probability for a pseudo label.")
    rounds: Whole = Field(
        1, ge=1, le=10, description="Number of rounds: after each, the student becomes the next teacher."
    )

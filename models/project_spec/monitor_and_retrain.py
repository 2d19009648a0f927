"""The blocks `monitor` and `retrain` of a spec."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from models.project_spec.block import Fraction, SpecBlock, Whole
from models.project_spec.schedule import check_timezone, parse, unix_time

Trigger = Literal["schedule", "new_data", "decay", "broken_data", "drift"]


def _is_schedule(text: str) -> str:
    parse(text)
    return text


def _date_as_text(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value


def _is_time(text: str | None) -> str | None:
    if text is not None:
        try:
            unix_time(text)
        except ValueError:
            raise ValueError(
                f"got {text!r}, expected an ISO date or time such as 2026-11-20 or 2026-11-20T14:00Z"
            ) from None
    return text


ScheduleText = Annotated[str, AfterValidator(_is_schedule)]


class Monitor(SpecBlock):
    """How the champion's predictions are monitored: windows of predictions, checked most important first.

    Source of the defaults: false-alarm rates and power on real flights; see docs/how-to/monitoring.md.
    """

    schedule: ScheduleText | None = Field(
        "every 15 minutes",
        description="Schedule of monitoring: a cron line, `every 15 minutes` or `RRULE:...`; null: by hand only.",
    )
    window: Whole = Field(1000, ge=100, description="Predictions in one window.")
    alarms: Whole = Field(
        2, ge=1, description="Number of the last `of` windows that must alarm before a signal is sent."
    )
    of: Whole = Field(2, ge=1, description="The last windows that are looked at.")
    alpha: float = Field(
        0.01,
        gt=0,
        lt=1,
        description="Significance level of the drift tests, after Holm's correction over the features.",
    )
    psi: float = Field(0.05, gt=0, description="Least population stability index that is drift.")
    psi_strong: float = Field(0.2, gt=0, description="Population stability index from which drift is strong.")
    new_categories: Fraction = Field(0.005, description="Share of values never seen in training that is an alarm.")
    nulls: Fraction = Field(0.02, description="Change of a column's share of missing values that is an alarm.")
    margin: float | None = Field(
        None,
        ge=0,
        description="Decay: the realised metric is worse than the verdict's at promotion by more than this. Default: "
        "judge.margin, if a challenger may lose so much; else 0.",
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Confidence of the interval of the realised metric.")
    weights: Literal["importance", "sampling"] = Field(
        "importance",
        description="What data.weight says, as served rows have none. importance: how much a row matters; served rows "
        "are compared with test rows that count alike. sampling: how many served rows a row stands for; they are "
        "compared with the weighted test rows.",
    )
    min_labels: Whole = Field(
        100, ge=30, description="Fewest labels of a window for which the realised metric is computed."
    )
    seasonal: list[str] = Field(
        default_factory=list,
        description="Features whose drift is expected: it is shown and raises no alarm.",
    )
    accepted: Annotated[str | None, BeforeValidator(_date_as_text), AfterValidator(_is_time)] = Field(
        None,
        description="Date or time (ISO; UTC without a zone) at which a person accepted the drift that lasted then: "
        "later windows count as drifted only beyond it.",
    )
    keep_days: Whole | None = Field(
        None,
        ge=1,
        le=36_500,
        description="Older predictions and labels are deleted; while retrain.feedback is true those that have each "
        "other stay, as rows of the dataset. Default: all are kept.",
    )

    @model_validator(mode="after")
    def _alarms_of_windows(self) -> Monitor:
        if self.alarms > self.of:
            raise ValueError(f"alarms {self.alarms} of {self.of} windows can never be: say `of: {self.alarms}` or more")
        if self.psi_strong < self.psi:
            raise ValueError(f"psi_strong {self.psi_strong:g} is under psi {self.psi:g}: it is the stronger of the two")
        return self

    @property
    def accepted_at(self) -> float | None:
        """`accepted` in Unix seconds."""
        return None if self.accepted is None else unix_time(self.accepted)


class QuietHours(SpecBlock):
    """Hours in which no loop begins by itself; a person may begin one at any hour."""

    begin: Whole = Field(ge=0, le=23, description="Hour of the day.")
    end: Whole = Field(
        ge=0, le=23, description="End of the quiet hours (exclusive). If it is before `begin`, they last over midnight."
    )

    @model_validator(mode="after")
    def _some_hours(self) -> QuietHours:
        if self.begin == self.end:
            raise ValueError(f"begin and end are both {self.begin}: that is no hour; name two, or drop `quiet`")
        return self


class Retrain(SpecBlock):
    """When a loop is started again, and on which rows."""

    schedule: ScheduleText | None = Field(None, description="A cron line, `every 7 days` or `RRULE:...`.")
    timezone: Annotated[str, AfterValidator(check_timezone)] = Field(
        "UTC", description="Time zone of every schedule and of the quiet hours, such as Europe/Vienna."
    )
    on: list[Trigger] = Field(
        default_factory=list,
        description="Signals that may start a loop by themselves; a schedule and a person always may.",
    )
    cooldown_s: float = Field(
        3600.0, ge=0, description="Seconds after the end of the last loop in which no signal begins another."
    )
    min_new_labels: Whole = Field(
        0, ge=0, description="Fewest labelled rows that must have come since the last loop began."
    )
    budget_device_s: float | None = Field(
        None, gt=0, description="Most device-seconds that the loops of 30 days may cost."
    )
    breaker: Whole = Field(3, ge=1, description="Number of failed loops in a row that opens the circuit breaker.")
    breaker_s: float = Field(
        7 * 86400.0, ge=0, description="How long the circuit breaker stays open. A person's request closes it."
    )
    quiet: QuietHours | None = None
    ask: bool = Field(False, description="Ask a person first: the run waits for approval on Prefect's page.")
    ask_timeout_s: float = Field(
        7 * 86400.0, gt=0, description="How long the run waits for approval. Without an answer nothing is retrained."
    )
    start: Literal["scratch", "champion"] = Field(
        "scratch",
        description="Weights to begin with. champion: a net begins with those of a champion that is the same net; any "
        "other champion is begun afresh, and trees and linear models are tried as usual.",
    )
    search: Literal["again", "reuse"] = Field(
        "again", description="reuse: train with the settings of the champion's search. again: search again."
    )
    rows: Whole | None = Field(None, ge=100, description="Train on this many of the newest rows. Default: all.")
    feedback: bool = Field(True, description="Labelled predictions become rows of the next version of the dataset.")

"""The policies that a backtest compares: the spec's own, standard ones for comparison, and a user's draft."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from models.errors import UsageError
from models.project_spec.monitor_and_retrain import Retrain

MONTHLY = "0 0 1 * *"
MONTHLY_WITHOUT_CALENDAR = "every 30 days"
EVERY, SPEC = "every", "spec"
_RULES: dict[str, dict[str, Any]] = {
    "never": {},
    "monthly": {"schedule": MONTHLY},
    "decay": {"on": ["decay"]},
    "drift": {"on": ["drift"]},
    EVERY: {"on": ["new_data"]},
}
DEFAULT = ("never", "monthly", "decay", "drift", SPEC)

# A plain policy has one rule and no guards, so that the rule's effect shows. Loops train on the spec's rows.
_UNGUARDED: dict[str, Any] = {
    "on": [],
    "schedule": None,
    "cooldown_s": 0.0,
    "min_new_labels": 0,
    "budget_device_s": None,
    "quiet": None,
    "ask": False,
}


@dataclass(frozen=True)
class Policy:
    """A named retraining rule."""

    name: str
    rules: Retrain

    @property
    def text(self) -> str:
        """The rule in words."""
        return in_words(self.rules)


def plain(name: str, rules: Retrain, has_calendar: bool = True) -> Policy:
    """Return one of the standard policies: never, monthly, decay, drift, every (at the end of each period), spec.

    Raises:
        UsageError: There is no such policy.
    """
    if name == SPEC:
        return Policy(name, rules)
    if name not in _RULES:
        raise UsageError(
            f"--policy: got {name!r}, expected one of {', '.join((*_RULES, SPEC))}, or a YAML file with keys of retrain"
        )
    rule = _RULES[name] if has_calendar or name != "monthly" else {"schedule": MONTHLY_WITHOUT_CALENDAR}
    return Policy(name, rules.model_copy(update={**_UNGUARDED, **rule}))


def drafted(name: str, document: Mapping[str, Any], rules: Retrain, display_name: str) -> Policy:
    """Return a policy from a file: its keys of `retrain` override the spec's own.

    Raises:
        UsageError: A key or value is wrong; one line for each.
    """
    keys = document.get("retrain", document)
    if not isinstance(keys, Mapping):
        raise UsageError(f"{display_name}: got {type(keys).__name__}, expected keys of retrain, such as `on: [decay]`")
    try:
        return Policy(name, Retrain.model_validate({**rules.model_dump(), **keys}))
    except ValidationError as error:
        lines = [
            f"{display_name}: {'.'.join(map(str, detail['loc'])) or 'retrain'}: got {detail['input']!r}: "
            f"{detail['msg'].removeprefix('Value error, ')}; known keys: {', '.join(Retrain.model_fields)}"
            for detail in error.errors()
        ]
        raise UsageError("\n".join(lines)) from error


def in_words(rules: Retrain) -> str:
    """Return the triggers and guards of a rule in one line."""
    triggers = [f"schedule {rules.schedule}"] if rules.schedule else []
    triggers += [trigger.replace("_", " ") for trigger in rules.on]
    if not triggers:
        return "nothing begins a loop by itself"
    rule = f"on {', '.join(triggers)}"
    guards = [
        (rules.cooldown_s > 0, f"cooldown {rules.cooldown_s / 3600:g} h"),
        (rules.min_new_labels > 0, f"at least {rules.min_new_labels} new labels"),
        (rules.budget_device_s is not None, f"at most {rules.budget_device_s or 0:g} device-seconds in 30 days"),
        (rules.quiet is not None, f"not {rules.quiet.begin} to {rules.quiet.end} h" if rules.quiet else ""),
        (rules.ask, "a person is asked (here: always says yes)"),
        (rules.rows is not None, f"newest {rules.rows} rows"),
        (rules.start == "champion", "from the champion's weights"),
    ]
    guards_on = [text for applies, text in guards if applies]
    return f"{rule}; {', '.join(guards_on)}" if guards_on else rule

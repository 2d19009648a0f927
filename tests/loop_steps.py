"""The steps of a loop by their names, for tests that carry them out without Prefect's flow."""

from __future__ import annotations

from tasks.steps import card, export, ingest, judge, prepare, promote, register, search, train, validate, version

STEPS = {
    "ingest": ingest.ingest, "validate-raw": validate.validate_raw, "prepare": prepare.prepare,
    "validate-prepared": validate.validate_prepared, "version": version.version, "search": search.search,
    "train": train.fit, "export": export.export, "judge": judge.judge, "register": register.register,
    "promote": promote.promote, "card": card.write_card,
}  # fmt: skip

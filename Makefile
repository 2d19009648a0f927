# Everything that CI and a newcomer run. Nothing is needed first but Python 3.11 to 3.13, make and git.
PYTHON ?= python3
PROJECT ?= flights
BIN := .venv/bin

.PHONY: run test check bench up story setup format lock

run: setup  ## set up and run the main job
	$(BIN)/loopline run $(PROJECT)

test: setup  ## set up and pass the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile $(TESTS)

check: setup  ## everything that must be clean before a change lands
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/contract

bench: setup  ## figures against bare scripts; printed and kept under .loopline/bench/
	$(BIN)/python -m tests.bench

up: setup  ## the platform: servers, worker, pages; `loopline down` ends it
	$(BIN)/loopline up

story: setup  ## months of flights against the running platform, in a workspace of its own
	$(BIN)/python infra/story/play.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:
	infra/lock.sh

setup:
	@$(PYTHON) infra/setup_env.py

# Everything that CI and a newcomer run. Nothing is needed first but Python 3.11 to 3.13, make and git.
PYTHON ?= python3
PROJECT ?= flights
BIN := .venv/bin
SEED ?= $(shell date +%s)
# Three workers for two cores: tests wait for processes. A file is one worker's, since tests share its
# workspaces and servers; in the order of folders the costly files come first and the small ones of tests/unit fill up.
# The workers are forked from one process that has imported what they need.
PYTEST := $(BIN)/python -m pytest --tx '$(or $(WORKERS),3)*popen//python=$(BIN)/python -m tests.warm_worker' \
	--max-worker-restart 2 --dist loadfile --no-loadscope-reorder --durations=50

.PHONY: run test test-wide test-fast cluster-slurm cluster-kubernetes soak check lint contract docs reference pictures estimators bench bench-gpu bench-quality up story setup format lock

run: setup  ## set up and run the main job
	$(BIN)/loopline run $(PROJECT)

SUITE := tests --ignore=tests/contract --ignore=tests/cluster

test: setup  ## set up and pass the tests of every change; tests/contract is of `make check`, tests/cluster of `make cluster-...`
	$(PYTEST) -m "not wide" $(or $(TESTS),$(SUITE))

test-wide: setup  ## these, and those that repeat them on other stores, kinds, sizes and points: before a landing, and each night
	$(PYTEST) $(or $(TESTS),$(SUITE))

test-fast: setup  ## what needs no other process: unit and contract tests
	$(PYTEST) -m "not wide" tests/unit tests/contract

cluster-slurm: setup  ## training on two nodes: a real Slurm in network namespaces (needs root and its programs), and bare torchrun
	$(BIN)/python -m pytest -rs tests/cluster/test_slurm.py tests/cluster/test_torchrun.py

cluster-kubernetes: setup  ## training and flow runs in pods of a real Kubernetes (needs root, and KUBERNETES_BINARIES of tests/cluster/build_kubernetes.sh)
	$(BIN)/python -m pytest -n 0 -rs tests/cluster/test_kubernetes.py tests/cluster/test_pods.py

soak: SEED := $(SEED)
soak: setup  ## what draws at random, with another seed each time; SEED=N draws the same again; MINUTES of stopped processes
	FAULT_SEED=$(SEED) SOAK_MINUTES=$(or $(MINUTES),10) SOAK_ROUND=$(or $(ROUND),0) $(BIN)/python -m pytest -m "soak or hypothesis" --hypothesis-seed=$(SEED) $(TESTS)

check: setup  ## everything that must be clean before a change lands
	$(MAKE) --no-print-directory --jobs 2 --output-sync lint contract

lint:  # half of `make check`
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

contract:  # the other half
	$(BIN)/zensical build --strict --clean
	$(BIN)/python -m pytest -q tests/contract

docs: setup  ## the site, in flows/site, from where `loopline docs` opens it; a broken link is an error
	$(BIN)/zensical build --strict --clean

reference: setup  ## the generated pages of the site: reference, layers, list of decisions
	$(BIN)/python infra/documentation/write_reference.py

pictures: setup  ## the pictures of pages in the site; needs Debian's chromium
	$(BIN)/python infra/documentation/page_pictures.py

estimators: setup  ## the page of the estimators by task, each probed; needs EXTRAS=estimators and some minutes
	OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 $(BIN)/python infra/documentation/estimator_table.py

bench: setup  ## figures against bare scripts; printed and kept under .loopline/bench/
	$(BIN)/python -m tests.bench

bench-gpu: setup  ## what the engine does on a GPU: speed, memory, bits and starts in tables; needs a GPU
	$(BIN)/python -m tests.bench.gpu $(PARTS)

bench-quality: setup  ## the defaults against other tools on open data sets; MINUTES=8 measures a piece, the next goes on; HALF=once
	$(BIN)/python -m tests.bench.quality $(if $(MINUTES),--minutes $(MINUTES)) $(if $(HALF),--half $(HALF)) $(OPTIONS)

up: setup  ## the platform: servers, worker, pages; `loopline down` ends it
	$(BIN)/loopline up

story: setup  ## months of flights against the running platform, in a workspace of its own
	$(BIN)/python infra/story/play.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:
	infra/lock.sh

setup:  ## the environment, as the lock files want it; EXTRAS=estimators adds the libraries of families by reference, for good
	@$(PYTHON) infra/setup_env.py $(EXTRAS)

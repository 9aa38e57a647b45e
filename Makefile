# Every target sets itself up: it makes a virtual environment and installs what it needs, once.
# Two commands to know: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
PARALLEL ?= 2

# One thread a process: torch's threads spin, and two of them beside another busy process slow each other a hundredfold.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test fuzz test-install test-slow test-servers test-ray test-tracking lint format bench bench-peers bench-throughput docs pages clean

demo: $(VENV)/.run  ## how robust is the bundled network? A verdict, a table, a page with curves and pictures
	$(BIN)/parsimon evaluate robust --attack parsimonious --attack square --attack thrift --budget 500

test: $(VENV)/.test  ## the tests
	$(BIN)/python -m pytest -n $(PARALLEL)

test-install: $(VENV)/.test  ## build the package, install it elsewhere, and follow the README
	$(BIN)/python -m pytest -m install

test-slow: $(VENV)/.test  ## tests with large downloads
	$(BIN)/python -m pytest -m slow

# Another SEED is other input. What fails says how to try it again.
SEED ?= 1
INPUTS ?= 20000
fuzz: $(VENV)/.test  ## random input, much more of it than among the tests
	PARSIMON_FUZZ=$(INPUTS) PARSIMON_FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -n $(PARALLEL) tests/api/test_fuzz.py

# Each server in an environment of its own, since they pin what they need. SERVERS=mlserver: only that one.
SERVERS ?= mlserver triton
test-servers: $(VENV)/.test $(SERVERS:%=$(VENV)/%/.made)  ## tests with real inference servers
	PARSIMON_SERVERS="$(SERVERS)" $(BIN)/python -m pytest -m servers -n $(PARALLEL)

test-ray: $(VENV)/.ray  ## the tests on a Ray cluster of two nodes, which they start on this machine
	$(BIN)/python -m pytest -m ray

test-tracking: $(VENV)/.tracking  ## the tests with TensorBoard and Weights & Biases
	$(BIN)/python -m pytest -m tracking

lint: $(VENV)/.test $(VENV)/.lint  ## style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.test  ## time and memory on this machine; CONTRIBUTING.md lists the other measurements
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/accelerator.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/loop.py
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/workers.py

bench-peers: $(VENV)/.peers  ## Square and HopSkipJump beside other implementations of them
	$(BIN)/python benchmarks/square_peers.py
	$(BIN)/python benchmarks/hopskipjump_peers.py

bench-throughput: $(VENV)/.peers  ## how long an evaluation takes, beside the peers
	$(BIN)/python benchmarks/throughput.py

docs: $(VENV)/.docs  ## the documentation, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/_make/offline.py site

pages: $(VENV)/.test  ## the pages and pictures of the documentation that are made from code and stored runs
	for each in docs/_make/*.py; do case $$each in */_make/_*|*/offline.py|*/narrow_*) ;; *) $(BIN)/python $$each || exit; esac; done

clean:
	rm -rf $(VENV) site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	touch $@

$(VENV)/.run: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable ".[onnx]"
	touch $@

$(VENV)/.test: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable ".[onnx,torch,zoo,server]" --group test --group docs
	$(INSTALL) --no-deps torchattacks==3.5.1  # which pins a version of requests that nothing here needs
	touch $@

$(VENV)/.peers: $(VENV)/.test
	$(INSTALL) pyautoattack==0.2.0
	touch $@

$(VENV)/mlserver/.made: PACKAGES := mlserver==1.7.1 onnxruntime
$(VENV)/triton/.made: PACKAGES := nvidia-pytriton==0.7.0 numpy==1.26.4 onnxruntime
$(VENV)/mlserver/.made $(VENV)/triton/.made: | $(VENV)/.made
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet $(PACKAGES)
	touch $@

$(VENV)/.ray: $(VENV)/.test
	$(INSTALL) --editable ".[ray]"
	touch $@

$(VENV)/.tracking: $(VENV)/.test
	$(INSTALL) --editable ".[tensorboard,wandb]" tensorboard
	touch $@

$(VENV)/.lint: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --group lint
	touch $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable . --group docs
	touch $@

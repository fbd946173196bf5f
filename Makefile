# Two commands do everything: `make run` and `make test`.
# Needs Python 3.11 to 3.13 and make; the rest is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed
TOOLS = $(VENV)/.tools
NEVER_IMPORTED = '/(tests|testing|debugpy|mypy|pip|setuptools|codegen|fx_passes|kernel)/|/ray/(data|llm|rllib|serve|train|tune)/'

.PHONY: help install run check test every-test faults lint options docs bench reproduce grid clean

help:
	@echo "make run        install, then compare five strategies on 5,000 real MNIST images (3 minutes)"
	@echo "make install    only install, into .venv: what make run needs, and what the others need"
	@echo "make check      install, then lint, types and the fast tests, for every change"
	@echo "make test       install, then lint, types and all tests but those that only make faults runs"
	@echo "make faults     the faults and attacks with real processes (docs/faults.md), and other long tests"
	@echo "make lint       only lint and types"
	@echo "make options    the options into pyproject.toml and docs/options.md, from where they are declared"
	@echo "make docs       the pages and the API as a site, in site/"
	@echo "make bench      simulated rounds against a bare PyTorch loop"
	@echo "make reproduce  a paper's table: TABLE=rcc-pfl-2, or none to list them (needs FL_DATA_DIR)"
	@echo "make grid       the clustering grid of docs/results.md (needs FL_DATA_DIR)"

# `make run` needs a simulation's packages alone; tests, pages, notebooks and benchmarks need TOOLS, too.
# Compiled after the installation, since pip does so on one core; some files of the packages are
# written for other versions of Python, and a third, such as the packages' own tests and most of Ray,
# is never imported. Never left to the first import: where PYTHONDONTWRITEBYTECODE is set,
# every process would compile PyTorch for itself.
PIP = $(BIN)/pip install --disable-pip-version-check --no-compile --editable
COMPILE = $(BIN)/python -m compileall -q -j 0 -x $(NEVER_IMPORTED) $(VENV)/lib >/dev/null 2>&1 || true

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "Python 3.11 to 3.13 is needed: make PYTHON=/path/to/python3.11 run"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): PyTorch takes minutes, and 5 of 6 GB are its files for GPUs"
	@echo "(for the CPU alone, first: $(PYTHON) -m venv $(VENV), and torch and torchvision by https://pytorch.org)"
	$(PIP) '.[simulation]'
	@$(COMPILE)
	@touch $@

$(TOOLS): $(INSTALLED)
	$(PIP) '.[simulation,efficientnet,privacy,docs,dev]'
	@$(COMPILE)
	@touch $@

install: $(TOOLS)

run: $(INSTALLED)
	$(BIN)/fedkin run \
	  strategy=rcc-pfl,fedkin,optimum,fedavg,local repeats=3 \
	  dataset=mnist-5k num-tasks=3 noise=class-dependent noise-rate=0.25 \
	  num-server-rounds=20 evaluate-every=4 learning-rate=0.003

lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Three processes for two cores, since tests with real devices mostly wait; no more, since each imports
# all tests first, twelve seconds. Each library on one thread, since threads that share a core wait for
# each other. In the order of their names: otherwise those that mostly wait come last, all together.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

check: lint
	$(PYTEST) -m "not slow and not faults"

# Types are checked meanwhile, which takes one core half a minute.
test:
	$(MAKE) --no-print-directory --jobs 2 lint every-test

every-test: $(TOOLS)
	$(PYTEST) -m "not faults"

# With a SuperLink, a gate and SuperNodes of their own, or killed simulations (docs/faults.md), and
# what is long without being a fault: Ray, all of CIFAR-10, examples, the site of `make docs`.
FAULTS = tests/devices/test_*.py tests/app/simulation/test_launch.py

faults: $(TOOLS)
	$(PYTEST) $(FAULTS)
	$(PYTEST) -m faults tests $(FAULTS:%=--ignore-glob=%)

options: $(TOOLS)
	$(BIN)/python -m fl_app.config.options_page

docs: $(TOOLS)
	$(BIN)/mkdocs build --strict

bench: $(TOOLS)
	$(BIN)/python -m benchmarks.speed

reproduce: $(TOOLS)
	$(BIN)/python -m experiments $(TABLE)

grid: $(TOOLS)
	$(BIN)/python -m benchmarks.clustering_grid

clean:
	rm -rf $(VENV) build site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

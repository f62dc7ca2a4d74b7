# `make help` lists the targets. All make .venv with the pinned versions first.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := synth,chinese,voices,hama,minilm,s3prl,ray,serve,tensorboard,peft,peptides,docs,notebooks,speed,dev

# The package's tests in two runs of pytest that take about as long: these folders, and the others.
FOLDERS := $(addprefix tests/,cascade dual encoders eval faults multiple_choice pretrain speechbert superb synth units)
OTHERS := tests $(addprefix --ignore=,$(FOLDERS))
# The smoke runs likewise: three take as long as the others, the notebooks and the page in a browser.
SMOKE := tests/recipes/test_smoke.py tests/test_notebooks.py tests/test_serve.py
LONG := test_units_and_their_readers or test_robustness_goes_on or test_superb_goes_on

.PHONY: help size demo test test-others test-folders test-fast fast-folders fast-others smoke smoke-long smoke-short faults check package docs

help: ## show this list
	@echo "usage: make TARGET [PYTHON=python3.12]"
	@sed -nE 's/^([a-z.\/-]+):[^#]*## (.*)/  \1\t\2/p' Makefile | expand -t 16

demo: .venv/ready ## a new test set, four systems in clean and noisy speech, a page: 5 to 15 minutes, more with a Whisper fetched (SEED=2 PASSAGES=100 EXP=folder)
	PATH="$(abspath $(BIN)):$$PATH" bash recipes/demo/run.sh

# Two parts at a time, so that both cores end together.
test: .venv/ready ## the tests, with two recipes and a notebook: some eight minutes on two cores
	@echo "some eight minutes on two cores; each part prints when it is through"
	@$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target test-others test-folders

test-fast: .venv/ready ## the package's tests without the slow ones: about a minute
	@$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target fast-folders fast-others

# A thread each: where two programs share two cores, more would mostly wait for one another.
test-others test-folders fast-folders fast-others smoke-long smoke-short: export OMP_NUM_THREADS = 1

smoke: .venv/ready ## every recipe on almost nothing, the notebooks, the page in a browser: a quarter of an hour
	@$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target smoke-long smoke-short

smoke-long: .venv/ready
	SMOKE=1 $(BIN)/python -m pytest tests/recipes/test_smoke.py -k "$(LONG)"

smoke-short: .venv/ready
	SMOKE=1 $(BIN)/python -m pytest $(SMOKE) -k "not ($(LONG))"

test-folders: .venv/ready
	$(BIN)/python -m pytest $(FOLDERS)

test-others: .venv/ready
	$(BIN)/python -m pytest $(OTHERS)

fast-folders: .venv/ready
	$(BIN)/python -m pytest $(FOLDERS) -m "not slow"

fast-others: .venv/ready
	$(BIN)/python -m pytest $(OTHERS) --ignore=tests/recipes -m "not slow"

faults: export OMP_NUM_THREADS = 1

faults: .venv/ready ## all of tests/faults, of which `make test` runs a sample: a quarter of an hour
	FAULTS=1 $(BIN)/python -m pytest tests/faults

size: .venv/ready ## lines, tokens, options and refusals of each subpackage
	$(BIN)/python dev/size.py

check: .venv/ready ## ruff, mypy and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

package: .venv/ready ## build sdist and wheel into dist/, and try them without the repository
	PYTHON=$(BIN)/python .ci/package

docs: .venv/ready ## build the pages into site/, and check their links
	MKDOCS=$(BIN)/mkdocs .ci/docs

.venv/ready: pyproject.toml constraints.txt ## only make the environment: 7.3 GB, some minutes
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "speechssl needs Python 3.11 to 3.13; say which with make PYTHON=...")'
	@# Debian's python3 without python3-venv has no ensurepip; a pip or uv that is there can fill the environment instead
	@$(PYTHON) -m venv .venv 2>/dev/null \
	|| { $(PYTHON) -m venv --clear --without-pip .venv && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip 2>/dev/null; } \
	|| uv venv --quiet --clear --seed --python $(PYTHON) .venv 2>/dev/null \
	|| { echo "this Python has neither ensurepip nor pip: install python3-venv (apt install python3-venv) or uv, and try again" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@# PESQ is compiled here
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[superb]' \
	|| echo "speech enhancement cannot be evaluated: PESQ could not be built (apt install gcc python3-dev); its tests are skipped" >&2
	touch $@

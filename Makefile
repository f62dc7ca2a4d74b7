# `make demo`, `make test`, `make test-fast` and `make check`. All make .venv with the pinned versions first.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := synth,chinese,pocketsphinx,voices,minilm,s3prl,ray,dev

# The package's tests in two runs of pytest that take about as long: these folders, and the others.
FOLDERS := $(addprefix tests/,cascade dual encoders multiple_choice pretrain speechbert superb units)
OTHERS := tests $(addprefix --ignore=,$(FOLDERS) tests/recipes)

.PHONY: demo test test-recipes test-folders test-others test-fast fast-folders fast-others check

demo: .venv/ready
	PATH="$(abspath $(BIN)):$$PATH" bash recipes/demo/run.sh

# The recipes' tests share what they import: one run of pytest beside those of the package.
test: .venv/ready
	@echo "some ten minutes on two cores; each part prints when it is through"
	@$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target test-recipes test-folders test-others

test-fast: .venv/ready
	@$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target fast-folders fast-others

# A thread each: where two programs share two cores, more would mostly wait for one another.
test-recipes test-folders test-others fast-folders fast-others: export OMP_NUM_THREADS = 1

test-recipes: .venv/ready
	$(BIN)/python -m pytest tests/recipes

test-folders: .venv/ready
	$(BIN)/python -m pytest $(FOLDERS)

test-others: .venv/ready
	$(BIN)/python -m pytest $(OTHERS)

fast-folders: .venv/ready
	$(BIN)/python -m pytest $(FOLDERS) -m "not slow"

fast-others: .venv/ready
	$(BIN)/python -m pytest $(OTHERS) -m "not slow"

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/ready: pyproject.toml constraints.txt
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

# `make demo`, `make test`, `make test-fast` and `make check`. All make .venv with the pinned versions first.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := synth,chinese,pocketsphinx,voices,minilm,s3prl,ray,dev

.PHONY: demo test test-package test-recipes test-fast check

demo: .venv/ready
	PATH="$(abspath $(BIN)):$$PATH" bash recipes/demo/run.sh

# The recipes' tests mostly wait for programs to start, and share what they import: one run of pytest beside that of the package.
test: .venv/ready
	@echo "some fifteen minutes on two cores; each half prints when it is through"
	@$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target test-package test-recipes

# A thread each: where two programs share two cores, more would mostly wait for one another.
test-package test-recipes test-fast: export OMP_NUM_THREADS = 1

test-package: .venv/ready
	$(BIN)/python -m pytest --ignore=tests/recipes

test-recipes: .venv/ready
	$(BIN)/python -m pytest tests/recipes

test-fast: .venv/ready
	$(BIN)/python -m pytest --ignore=tests/recipes -m "not slow"

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

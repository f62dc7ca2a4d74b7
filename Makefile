# Two commands: `make demo` and `make test`. Both make .venv with the pinned versions first.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := synth,pocketsphinx,minilm,dev

.PHONY: demo test check

demo: .venv/ready
	PATH="$(abspath $(BIN)):$$PATH" bash recipes/demo/run.sh

test: .venv/ready
	$(BIN)/python -m pytest

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "speechssl needs Python 3.11 or newer; say which with make PYTHON=...")'
	@# Debian's python3 without python3-venv has no ensurepip; its pip can fill the environment instead
	$(PYTHON) -m venv .venv || { $(PYTHON) -m venv --clear --without-pip .venv && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

# Two commands: `make demo` and `make test`. Both make .venv with the pinned versions first.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := synth,pocketsphinx,minilm,s3prl,superb,ray,dev

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
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "speechssl needs Python 3.11 to 3.13; say which with make PYTHON=...")'
	@# Debian's python3 without python3-venv has no ensurepip; a pip or uv that is there can fill the environment instead
	@$(PYTHON) -m venv .venv 2>/dev/null \
	|| { $(PYTHON) -m venv --clear --without-pip .venv && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip 2>/dev/null; } \
	|| uv venv --quiet --clear --seed --python $(PYTHON) .venv 2>/dev/null \
	|| { echo "this Python has neither ensurepip nor pip: install python3-venv (apt install python3-venv) or uv, and try again" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

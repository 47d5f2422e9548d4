# Two commands matter: `make demo` and `make test`. Each installs what it needs into .venv first, and no more.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
USE := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check docs format install clean

demo: $(USE)
	$(BIN)/ripple demo

test: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(DEV)

# torch goes first and pinned: left to another package's open range, pip would fetch the CUDA build.
$(USE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("ripple needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e .
	touch $(USE)

$(DEV): $(USE)
	$(PIP) -e '.[dev]'
	touch $(DEV)

$(DOCS): $(USE)
	$(PIP) -e '.[docs]'
	touch $(DOCS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

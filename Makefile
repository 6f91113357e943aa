# `make lab` opens the course; `make test` runs every test (where the tests are).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
ARGS ?=
ROOT_FLAG := $(shell [ "$$(id -u 2>/dev/null)" = 0 ] && echo --allow-root)

.PHONY: lab demos test check lint fix notebooks clean

lab: $(VENV)/.installed  ## open JupyterLab on the first notebook (make lab ARGS=--no-browser for a server)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/jupyter lab $(ROOT_FLAG) --LabApp.default_url=/lab/tree/notebooks/01_scale_arithmetic.ipynb $(ARGS)

demos: $(VENV)/.installed-demos  ## the lecture demos as a page without code (make demos ARGS=--no-browser for a server)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/voila notebooks/lecture_demos.ipynb --theme=light $(ARGS)

$(VENV)/.installed-demos: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[demos]"
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; v = sys.version_info[:2]; sys.exit(f'Python 3.11 or newer is needed, this is {v[0]}.{v[1]}: make lab PYTHON=python3.11' if v < (3, 11) else 0)"
	@echo "Setting up $(VENV): a minute or two, once; longer on a slow network."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	mkdir -p $(VENV)/share/jupyter/lab/settings
	cp distgen_lab/data/lab_overrides.json $(VENV)/share/jupyter/lab/settings/overrides.json
	@touch $@

clean:  ## remove what the commands above made
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis

# For developers of the course; the class gets what stands above.

TESTS ?= tests notebooks solutions

test: $(VENV)/.installed-test  ## every test, nbval over notebooks/ and solutions/ included
	$(BIN)/python -m pytest --nbval --nbval-kernel-name=python3 --nbval-cell-timeout=120 $(TESTS) $(ARGS)

check: lint  ## the fast part of the tests: under 3 minutes, before every commit
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

lint: $(VENV)/.installed-test  ## ruff and the notebook format checker
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet distgen_lab tests
	$(BIN)/python -m distgen_lab.notebooks check

fix: $(VENV)/.installed-test  ## put code and notebooks into the course's form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format distgen_lab tests
	$(BIN)/python -m distgen_lab.notebooks fix

notebooks: $(VENV)/.installed-test  ## run notebooks and solutions, store outputs, generate exercises
	$(BIN)/python -m distgen_lab.notebooks build $(ARGS)

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	@touch $@

# make demo: environment, install, `hopstate demo`. make test: environment, install, quick tests.
# make test-full: every test. make test-lowest: quick tests with the lowest versions. make test-gpu: those of a GPU.
# make golden: record what every method computes today.
# make docs: the site, links checked. make release: wheel and sdist, each installed in an empty environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt

.PHONY: demo test test-full test-lowest test-gpu test-portable golden fuzz gpu made lint types imports wheel docs release clean

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) -e '.[docs]'
	touch $@

# train on synthetic data, ask who is next, write a report
demo: $(VENV)/.installed
	$(BIN)/hopstate demo

# quick tests of all behavior
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow and not gpu" -n 2 --dist loadfile

# everything: documentation commands, notebooks, fault injection, kills, hostile files, slow references
test-full: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not gpu" -n 2 --dist loadfile --timeout 1800

# quick tests with the lowest versions that pyproject.toml allows, of the core and of prepare
test-lowest:
	test -x $(VENV)-lowest/bin/python || $(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip --disable-pip-version-check install -q uv
	$(VENV)-lowest/bin/uv pip install -q --python $(VENV)-lowest/bin/python --resolution lowest-direct -e '.[test,prepare,tune]'
	NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)-lowest/numba $(VENV)-lowest/bin/python -m pytest -m "not slow and not gpu" -n 2 --dist loadfile

# on a machine with a GPU, with the Python that has torch; nothing is installed
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu

# losses, metrics and scores of every method and the outputs of commands, into tests/golden/values
golden: $(VENV)/.installed-dev
	$(BIN)/python tests/golden/record.py

# an hour of changed files at every reader; what it finds lies in fuzz/
fuzz: $(VENV)/.installed-dev
	$(PIP) -e '.[fuzz]'
	$(BIN)/python tests/hostile/fuzz.py --seconds 3600 --out fuzz

# operators, layers and golden values with the instructions of other processors, and with 1 and 3 threads
test-portable: $(VENV)/.installed-dev
	$(BIN)/python tests/portable.py

# figures of a GPU
gpu:
	PYTHONPATH=src $(PYTHON) benchmarks/gpu.py --out gpu-results

# what follows from the code: docs/paper-to-code.md, docs/images
made: $(VENV)/.installed-dev
	$(BIN)/python docs/made/paper_to_code.py
	$(BIN)/python docs/made/drawings.py
	$(BIN)/python docs/made/notebooks.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests benchmarks docs/examples
	$(BIN)/ruff format --check src tests benchmarks docs/examples

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

wheel: $(VENV)/.installed-dev
	rm -rf dist .venv-wheel
	$(BIN)/python -m build -q --wheel
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt dist/*.whl
	cd / && $(CURDIR)/.venv-wheel/bin/python -c "import hopstate; print('imported', hopstate.__version__, 'from', hopstate.__file__)"
	cd / && $(CURDIR)/.venv-wheel/bin/hopstate --help > /dev/null
	rm -rf .venv-wheel

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean -d site
	@echo "open site/index.html"

release: $(VENV)/.installed-dev
	rm -rf dist .venv-release
	$(BIN)/python -m build -q
	for file in dist/*.whl dist/*.tar.gz; do \
		rm -rf .venv-release && $(PYTHON) -m venv .venv-release && \
		.venv-release/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt $$file && \
		(cd / && $(CURDIR)/.venv-release/bin/hopstate --help > /dev/null) && echo "installs and runs: $$file" || exit 1; \
	done
	rm -rf .venv-release

clean:
	rm -rf .venv .venv-lowest .venv-wheel .venv-release dist build site .mypy_cache .ruff_cache .pytest_cache .hypothesis

# make demo: environment, install, train on the embedded data. make test: environment, install, tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := runs/demo-$(shell date +%Y%m%d-%H%M%S)
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt

.PHONY: demo test test-slow lint types imports wheel clean

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e '.[dev]'
	touch $@

# one static and one temporal comparison on data that are made here: run folders, curves and a table each
demo: $(VENV)/.installed
	$(BIN)/hopstate compare nagphormer,sage,gcn,mlp --data minesweeper-generated --out $(RUN)-static -- \
		--model.dim 64 --loop.epochs 30 --loop.optim.lr 3e-3 \
		--nagphormer.tokens.num_hops 3 --nagphormer.tokens.eigenvectors 4
	$(BIN)/hopstate compare recency,edgebank,graphmixer,dygformer --data messages-generated --out $(RUN)-temporal -- \
		--loop.epochs 3 --loop.optim.lr 1e-3 --dygformer.loop.epochs 2 --dygformer.model.max_length 8

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow and not gpu" -n 2 --dist loadfile

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks

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

clean:
	rm -rf .venv .venv-wheel dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

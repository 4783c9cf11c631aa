# Everything sets itself up: the first `make demo` or `make test` creates .venv from constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test doctest lint bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: $(READY)
	$(BIN)/python examples/dcgan.py

test: $(READY)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

doctest: $(READY)
	$(BIN)/python -m pytest --doctest-modules --pyargs genmonitor

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(READY)
	$(BIN)/python benchmarks/cka.py
	$(BIN)/python benchmarks/cms.py
	$(BIN)/python benchmarks/promptsplit.py
	$(BIN)/python benchmarks/entropy.py
	$(BIN)/python benchmarks/two_sample.py
	$(BIN)/python benchmarks/overhead.py

clean:
	rm -rf .venv build dist runs *.egg-info

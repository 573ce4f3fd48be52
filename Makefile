# Needs Python 3.11 or later and make. Everything goes into a virtual environment, VENV, made when it
# is absent. Running a target again is quick: pip runs only after a change.
PYTHON ?= python3
VENV ?= .venv
OUT ?= out/llama3-70b
BIN = $(VENV)/bin
JOB = --model llama3-70b --cluster 8x8:h100-sxm --global-batch-size 128 --seq-length 8192
TO = --runtime megatron-lm --launcher torchrun --output-dir $(OUT)/launch
SOURCES := $(shell find cli costmodel planner profiler -type f -not -name '*.pyc')

.PHONY: demo demo-profile test full oracles runtimes attack faults mutation coverage check docs pictures site fit accuracy bench release
demo: $(VENV)/.demo
	@mkdir -p $(OUT)
	$(BIN)/plan search $(JOB) --output $(OUT)/plan.json --report $(OUT)/report.html --force
	$(BIN)/plan export $(OUT)/plan.json $(TO) --force
	@echo "plan: $(OUT)/plan.json, report: $(OUT)/report.html, launch script: $(OUT)/launch/run.sh"
# Measures this machine, with torch for CPUs; for its GPUs: TORCH_INDEX=https://pypi.org/simple
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
demo-profile: $(VENV)/.profile
	@mkdir -p out
	$(BIN)/plan profile --quick --output out/profile.json --force
	$(BIN)/plan doctor out/profile.json
# A core that has none left takes tests over from another; no test takes a second one for products of
# matrices. `full`: every cell of every grid.
test full: export OMP_NUM_THREADS = 1
test full: export OPENBLAS_NUM_THREADS = 1
test: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal
full: $(VENV)/.oracles
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --full
# Formulas against models in torch on fake tensors, and the profiler; downloads torch, needs no GPU.
oracles: $(VENV)/.oracles
	$(BIN)/python -m pytest -m oracle tests/oracles
# Exported plans through the runtimes' own code, on a CPU. Clones nothing: variables name checkouts at
# the commits in docs/how-to/check-exports-with-the-runtimes.md; a runtime without one is skipped.
CHECKOUTS = MEGATRON_LM_PATH MEGATRON_BRIDGE_PATH ZERO_BUBBLE_PATH TORCHTITAN_PATH DEEPSPEED_PATH ACCELERATE_PATH \
	LLAMA_FACTORY_PATH AXOLOTL_PATH MS_SWIFT_PATH TRL_PATH
runtimes: $(VENV)/.runtimes
	@echo "Checkouts, set by you: $(foreach name,$(CHECKOUTS),$(name)=$($(name)))"
	$(BIN)/python -m pytest -m runtime tests/runtimes
# Climbs, brute force and harder questions against the proofs of the search; SEED is the first one.
SECONDS ?= 3600
attack: $(VENV)/.dev
	$(BIN)/python -m tests.attack.run --seconds $(SECONDS) --seed $(SEED)
# Signals that strike random processes of `plan profile`, on one node and two; SEED draws others.
COUNT ?= 100
faults: $(VENV)/.oracles
	$(BIN)/python -m tests.attack.faults --count $(COUNT) --seed $(SEED)
# Faults put in one by one, in a copy: hours, for the night. SEED draws others.
SEED ?= 1
mutation: $(VENV)/.mutation
	$(BIN)/python tests/mutation/nightly.py --seed $(SEED)
# Branches of costmodel and planner that tests reach, for the night; fails below the floor in
# pyproject.toml.
coverage: export OMP_NUM_THREADS = 1
coverage: $(VENV)/.coverage
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --cov --cov-branch tests/unit tests/properties tests/golden tests/oracles
check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p trainplan -m tests.unit.planner.test_typed_api -m tests.unit.cli.python.test_typed
	$(BIN)/lint-imports --no-cache
	$(BIN)/python .ci/house.py
	$(BIN)/python docs/generator/generate.py --check
docs: $(VENV)/.dev
	$(BIN)/python docs/generator/names.py
	$(BIN)/python docs/generator/generate.py
	$(BIN)/python docs/generator/notebook.py
# docs/ as a site in SITE, for a browser, from the disk too; fails where a link of it leads nowhere.
SITE ?= site
site: $(VENV)/.site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir $(abspath $(SITE))
	$(BIN)/python docs/generator/check_site.py $(SITE)
# The README's pictures of what `plan search` prints and of its report.
pictures: $(VENV)/.dev
	PYTHONPATH=. $(BIN)/python docs/generator/pictures.py
fit: $(VENV)/.dev
	$(BIN)/python examples/accuracy/fit.py --write
accuracy: $(VENV)/.pictures
	$(BIN)/python docs/generator/accuracy.py
bench: $(VENV)/.dev
	$(BIN)/python -m pytest -o addopts=--import-mode=importlib --benchmark-only tests/benchmarks
# Sources, wheel, SBOM and sums in dist/, which is not yet there; uploads nothing. TAG=v1.2.0 checks it.
release: $(VENV)/.release
	$(BIN)/python .ci/release.py --output dist --tag "$(TAG)"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@
$(VENV)/.pictures: pyproject.toml | $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[pictures]'
	@touch $@
$(VENV)/.site: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[site]'
	@touch $@
$(VENV)/.oracles: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev,profile,train,oracles]'
	@touch $(VENV)/.dev $@
$(VENV)/.runtimes: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev,runtimes]'
	@touch $(VENV)/.dev $@
$(VENV)/.mutation: pyproject.toml | $(VENV)/.oracles
	$(BIN)/python -m pip install --quiet --editable '.[mutation]'
	@touch $@
$(VENV)/.coverage: pyproject.toml | $(VENV)/.oracles
	$(BIN)/python -m pip install --quiet --editable '.[coverage]'
	@touch $@
$(VENV)/.release: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[release]'
	@touch $@
# An editable installation follows the sources by itself.
$(VENV)/.demo: pyproject.toml $(SOURCES) | $(BIN)/python
	test -e $(VENV)/.dev || $(BIN)/python -m pip install --quiet .
	@touch $@
$(VENV)/.profile: $(VENV)/.demo
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet --index-url $(TORCH_INDEX) 'torch>=2.6'
	$(BIN)/python -m pip install --quiet $$(test -e $(VENV)/.dev && echo --editable) '.[profile]'
	@touch $@

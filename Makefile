# Start with `make demo` and `make test`. Everything they need goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0

.PHONY: demo doctor test test-fast check format clean minilm serving training operators schemas locale pages docs release test-recordings test-browser test-slow test-journeys test-omission test-jobs test-formats test-s3 test-causes test-npu mutants bench-gate bench-cards bench-rules lab bench-trace device-day fuzz test-ci test-cluster

demo: $(VENV)/.runnable
	$(BIN)/perfgate demo

# Show on this machine that the gate fires: about three minutes.
doctor: $(VENV)/.installed
	$(BIN)/perfgate doctor

# Containers of Python often set it; without bytecode the tests' modules, and perfgate in every process, are compiled anew.
unexport PYTHONDONTWRITEBYTECODE

# These tests tell honest workers from others by their CPU time, so they need the machine to themselves.
ALONE := tests/traps/test_processes.py
SCANNER := perfgate/trace/scanner/_scanner.so
# The others wait for processes a third of their time, so one more runs than there are cores. Each is given one thread: those of several
# workers would wait for each other in loops.
WORKERS := $(shell expr $$(nproc) + 1)
PARALLEL := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# More skipped tests than this fail: a test that is skipped proves nothing. CONTRIBUTING says which they are.
MOST_SKIPPED := 40
test: $(VENV)/.installed $(SCANNER)
	$(BIN)/python -m compileall -q -j 0 perfgate plugins
	$(BIN)/python -m pytest $(ALONE); alone=$$?; \
	$(PARALLEL) --most-skipped $(MOST_SKIPPED) $(ALONE:%=--ignore=%) && exit $$alone

# Read recordings of real machines, and let the official API descriptions judge what we send to forges and what the fake forge answers.
# Both lie beside the checkout in ../shared, or in PERFGATE_RECORDINGS. Half a minute; `make test` needs none of them.
# Every process imports what it collects, so only files with such tests are named.
RECORDED = $(shell grep -rlE --include='test_*.py' 'mark\.(recordings|official)|forge_suite' tests plugins)
test-recordings: $(VENV)/.installed $(SCANNER)
	$(PARALLEL) -rs -m "(recordings or official) and not slow and not softnpu" $(RECORDED)

# For quick feedback while editing: the tests of the judging half that start no worker and simulate nothing for seconds. Less than a minute
# on two quiet cores.
FAST := $(addprefix tests/unit/,advice catalogue document forge gate report stats trend cli/test_main.py) tests/golden
NOT_FAST := $(addprefix tests/unit/,document/test_fuzz_reading.py forge/test_ci_files.py \
  forge/test_sticky.py gate/test_rule.py stats/test_batching.py stats/test_sequential.py) \
  tests/golden/test_measured_golden.py
# Comments of thousands of rows.
BULKY := $(addprefix tests/unit/report/test_comment.py::test_budget__,five_thousand_regressed_metrics__fits_as_posted_and_keeps_failing_rows \
  thousands_of_ops__stays_within_60000_and_keeps_the_failing_rows)
test-fast: $(VENV)/.installed
	$(BIN)/python -m pytest -q -n auto --dist worksteal $(NOT_FAST:%=--ignore=%) $(BULKY:%=--deselect=%) $(FAST)

# Formatting, lint, types, import contracts, the site, and the tests. Types are checked and the site is built with today's dependencies
# only: the oldest ones have other type hints.
check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(if $(CONSTRAINTS),,$(BIN)/mypy)
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config plugins/importlinter.ini
	$(if $(CONSTRAINTS),,$(MAKE) docs)
	$(MAKE) test

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Gate planted changes to a real model, all-MiniLM-L6-v2 (examples/minilm/README.md).
minilm: $(VENV)/.installed
	$(BIN)/python examples/minilm/gate.py $(CHANGES)

# Gate a planted change to a served model, a training, or an operator (examples/serving, examples/training, examples/operators).
serving training operators: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --requirement examples/$@/requirements.txt
	$(BIN)/python examples/gate.py $@ $(or $(CHANGE),$(if $(filter operators,$@),rows,layer))

# Write schemas/ anew from the records.
schemas: $(VENV)/.installed
	$(BIN)/python -m perfgate.flows.schemas

# Bring perfgate/locale/zh.po up to date with the sentences of code, templates and catalogue. Ends 1 and names the sentences that
# have no Chinese yet.
locale: $(VENV)/.installed
	$(BIN)/python -m tests.translations

# Write the tables of docs/ that are made from the schema of perfgate.toml, from the catalogue and from the traps.
pages: schemas
	$(BIN)/python -m tests.docs.tables
	$(BIN)/python -m tests.traps

# Build wheel and sdist and check them as the release workflow does; nothing is uploaded.
release: build/release/.installed
	rm -rf dist
	build/release/bin/python .ci/release.py --out dist
build/release/.installed: .ci/release-requirements.txt
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --require-hashes -r .ci/release-requirements.txt
	touch $@

# Build the site of the documentation into build/site; a broken link fails. `make docs SERVE=1` shows it while you edit.
SITE_BIN := build/docs/bin
docs: build/docs/.installed
	NO_MKDOCS_2_WARNING=1 $(SITE_BIN)/mkdocs $(if $(SERVE),serve,build --quiet)
build/docs/.installed: .ci/docs-requirements.txt
	$(PYTHON) -m venv build/docs
	$(SITE_BIN)/python -m pip install --quiet --require-hashes -r .ci/docs-requirements.txt
	touch $@

# Open our pages in Chromium, which has to be on the PATH.
test-browser: $(VENV)/.installed
	$(BIN)/python -m pytest -rs -m browser tests/unit/report

# Tests of many seconds each, which `make test` leaves out.
test-slow: $(VENV)/.installed build/docs/.installed
	$(BIN)/python -m pytest -m slow

# Type what users type, for minutes, in a new environment with everything installed from the wheel: at most a quarter of an hour on two
# quiet cores. `make test` only builds and installs the wheel.
test-journeys: $(VENV)/.installed
	$(BIN)/python -m pytest -m journey tests/journeys

# Leave out and alter every kind of place in the documents of checks: no verdict may get better, nothing may crash. About ten minutes.
test-omission: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --dist worksteal -m omission -rP tests/end_to_end/test_left_out.py

# Gate a real server, and real training scripts in several ranks; read what real benchmark tools write (installed into build/tools).
# About 30 minutes, on a machine that does nothing else.
test-jobs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --requirement examples/serving/requirements.txt
	$(BIN)/python -m pytest -m jobs tests/jobs

# Read the files of `perfgate report` with the tools that they are for (installed into build/tools); promtool if it is on the PATH.
test-formats: $(VENV)/.installed
	$(BIN)/python -m pytest -m formats tests/formats

# The artifact store on moto's server of S3. It is no part of `make test`: server and client take a hundred megabytes.
test-s3: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'moto[server]>=5' 's3fs>=2024.2'
	$(BIN)/python -m pytest -m s3 tests/s3

# Read recordings on real clusters of this machine: Ray, Dask, and Slurm where apt-get install slurm-wlm munge brought it. Check the
# templates for clusters by sbatch and by the schemas of Kubernetes.
test-cluster: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[ray,dask,slurm]' 'kubernetes-validate>=1.29'
	$(BIN)/python -m pytest -m cluster tests/cluster

# Plant seventeen causes in a small model; the comment must name each first. About eight minutes.
test-causes: $(VENV)/.installed
	$(BIN)/python -m pytest -m "slow or not slow" tests/causes

# The real torch_npu on a software NPU (tests/softnpu/README.md); needs CPython 3.11 on x86-64, g++ and nm.
NPU_BIN := .venv-npu/bin
test-npu: .venv-npu/.installed
	$(NPU_BIN)/python tests/softnpu/build.py build/softnpu
	. build/softnpu/set_env.sh && $(NPU_BIN)/python -m pytest -m softnpu tests/softnpu

# Run our CI files without a forge or docker: act, gitlab-ci-local, and prism with the official API description in front of the fake
# forge. Needs Linux on x86-64, npm, rsync, chromium and fonts (tests/ci/README.md). About twenty minutes.
CI_TOOLS := build/ci-tools
test-ci: $(VENV)/.installed $(CI_TOOLS)/.installed
	PATH="$(CURDIR)/$(CI_TOOLS)/bin:$$PATH" $(BIN)/python -m pytest -m ci tests/ci

# Change single lines of the gate, the engine and publish, and print which test notices each change; COUNT=10 SEED=2 for others. About
# 20 minutes on a busy machine.
mutants: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants --count $(or $(COUNT),60) --seed $(or $(SEED),1)

bench-gate: $(VENV)/.installed
	$(BIN)/python benchmarks/gate/live.py

# Simulate a thousand gates on a card for each cell of luck and noise; GATES=100 for a quick look.
bench-cards: $(VENV)/.installed
	$(BIN)/python benchmarks/gate/cards.py --gates $(or $(GATES),1000)

# Compare our decision rule with those of other tools on recorded noise; RECORDINGS=FOLDER where they are not beside the checkout.
bench-rules: $(VENV)/.installed
	$(BIN)/python benchmarks/gate/yardstick.py --quick $(if $(RECORDINGS),--recordings $(RECORDINGS))

# Time reading and analysing generated traces of many events, beside other ways to do it; EVENTS=1000000 for larger ones.
bench-trace: $(VENV)/.installed $(SCANNER)
	$(BIN)/python benchmarks/trace/cost.py --events $(or $(EVENTS),300000)

# Within twelve minutes on a machine with an accelerator: six clocks of two resident sides, then gates of equal code and of planted
# mistakes (benchmarks/accelerator/day.py). PERFGATE_PYTHON=python3 where torch for the device is in another interpreter.
device-day: $(if $(PERFGATE_PYTHON),,$(VENV)/.installed)
	$(or $(PERFGATE_PYTHON),$(BIN)/python) benchmarks/accelerator/day.py --device $(or $(DEVICE),cuda) --out $(or $(OUT),build/device-day.json)

# Fuzz the compiled scanners of traces and tables under the sanitizers, then every reader of foreign files, with coverage feedback;
# FUZZ_SECONDS=3600 for an hour each. Needs clang, and atheris, which has wheels for CPython 3.11 to 3.13 on x86-64.
fuzz: $(VENV)/.installed
	mkdir -p build/fuzz-scan
	clang -std=c11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all tests/fuzz/scan.c -o build/fuzz-scan/scan
	clang -std=c11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all tests/fuzz/table.c -o build/fuzz-scan/table
	cd build/fuzz-scan && ./scan -max_total_time=$(or $(FUZZ_SECONDS),60) -max_len=4000 . ../../tests/fuzz/seeds/events
	mkdir -p build/fuzz-table && cd build/fuzz-table && ../fuzz-scan/table -max_total_time=$(or $(FUZZ_SECONDS),60) -max_len=1000 . \
	  ../../tests/fuzz/seeds/tables
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]'
	$(BIN)/python tests/fuzz/atheris_readers.py --seconds $(or $(FUZZ_SECONDS),60)

# Find out what makes the effect of a process pair spread; EXPERIMENT=pages SECONDS=900, listed in benchmarks/gate/lab/conditions.py.
lab: $(VENV)/.installed
	$(BIN)/python benchmarks/gate/lab --experiment $(or $(EXPERIMENT),bias) --seconds $(or $(SECONDS),600) \
	  --out perfgate-out/lab/$(or $(EXPERIMENT),bias).jsonl
	$(BIN)/python benchmarks/gate/lab --table perfgate-out/lab/$(or $(EXPERIMENT),bias).jsonl

# `make check PYTHON=python3.10 CONSTRAINTS=build/oldest.txt TORCH=torch==2.7.0` with the oldest dependencies that are promised.
build/oldest.txt: pyproject.toml .ci/oldest.py
	mkdir -p build
	$(PYTHON) .ci/oldest.py > $@

PLUGINS := plugins/perfgate-advisor plugins/perfgate-forges
# torch first and by its exact version: with a range pip may choose a build with gigabytes of CUDA. It comes from TORCH_INDEX where that
# is given, from pip's own index if it is empty, and otherwise from where the CPU builds are.
TORCH_FROM = index="$${TORCH_INDEX-$$($(1)/python .ci/torch_index.py)}"
CONSTRAINTS ?=
# Tools of the tests that ask for newer packages do without them; hatchling cannot, and builds in an environment of its own.
OVERRIDE = $(CONSTRAINTS:%=UV_OVERRIDE=%)
INSTALL := $(BIN)/python .ci/install.py
# On all CPUs, where pip would compile one file after the other and uv everything. It is not left to the first import, because a check
# watches the packages for changes; tests of packages, and the packages that install others, are never imported by it. Some packages
# hold files that are no Python of this version.
COMPILE := $(BIN)/python -m compileall -qq -x 'site-packages/(.*/tests|torch/testing/_internal|torchgen|pip|setuptools)/'
# What torch brought, while other packages are looked for and downloaded.
COMPILE_TORCH := $(COMPILE) $(VENV)/lib/python*/site-packages/torch $(VENV)/lib/python*/site-packages/sympy
COMPILE_ALL := $(COMPILE) -j 0 $(VENV)/lib || true
$(VENV)/.torch:
	@echo "Installing into $(VENV): first torch, which takes minutes where it has to be downloaded"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip uv || $(BIN)/python -m pip install --quiet --upgrade pip
	$(call TORCH_FROM,$(BIN)) && $(INSTALL) $${index:+--index-url "$$index"} $(TORCH)
	touch $@
$(VENV)/.runnable: $(VENV)/.torch pyproject.toml $(CONSTRAINTS)
	@echo "Installing perfgate and what it needs"
	$(COMPILE_TORCH) & \
	$(INSTALL) --quiet $(CONSTRAINTS:%=--constraint %) --editable '.[cpu]' && wait
	$(COMPILE_ALL)
	touch $@
# The plug-ins are built with what dev brings: an environment would be made to build each of them in.
$(VENV)/.installed: $(VENV)/.torch pyproject.toml $(PLUGINS:%=%/pyproject.toml) $(CONSTRAINTS)
	@echo "Installing perfgate, and what it and the tests need"
	$(COMPILE_TORCH) & \
	$(OVERRIDE) $(INSTALL) --quiet $(CONSTRAINTS:%=--constraint %) --editable '.[cpu,dev]' && wait
	$(INSTALL) --quiet --no-deps $(if $(CONSTRAINTS),,--no-build-isolation) $(PLUGINS:%=--editable %)
	$(COMPILE_ALL)
	touch $@ $(VENV)/.runnable

# It is compiled when perfgate is installed; an older one than its sources is refused, and traces are then decoded in Python.
$(SCANNER): $(wildcard perfgate/trace/scanner/*.[ch]) | $(VENV)/.installed
	@if command -v $(firstword $(CC)) >/dev/null; then $(BIN)/python hatch_build.py; else echo "no C compiler: no scanner of traces"; fi

# --no-deps: torch_npu asks for the torch that is there already.
.venv-npu/.installed: pyproject.toml
	@test "$$(uname -sm)" = "Linux x86_64" || { echo "test-npu needs Linux on x86-64: this is $$(uname -sm)"; exit 1; }
	@python3.11 -c "" 2>/dev/null || { echo "test-npu needs python3.11 on the PATH: torch_npu 2.13 is tested on it"; exit 1; }
	python3.11 -m venv .venv-npu
	$(NPU_BIN)/python -m pip install --quiet --upgrade pip
	$(call TORCH_FROM,$(NPU_BIN)) && $(NPU_BIN)/python -m pip install --quiet $${index:+--index-url "$$index"} $(TORCH)
	$(NPU_BIN)/python -m pip install --quiet --no-deps torch-npu==2.13.0
	$(NPU_BIN)/python -m pip install --quiet numpy pyyaml packaging psutil setuptools pytest pytest-xdist hypothesis --editable .
	touch $@

# The programs that the tests start have a folder of their own: gitlab-ci-local needs the Node that npm brings.
$(CI_TOOLS)/.installed: tests/ci/tools/package-lock.json tests/ci/tools/requirements.txt
	mkdir -p $(CI_TOOLS)/bin
	cp tests/ci/tools/package.json tests/ci/tools/package-lock.json tests/ci/tools/.npmrc $(CI_TOOLS)/
	npm ci --silent --prefix $(CI_TOOLS)
	$(PYTHON) -m venv $(CI_TOOLS)/venv
	$(CI_TOOLS)/venv/bin/python -m pip install --quiet --require-hashes -r tests/ci/tools/requirements.txt
	ln -sf ../venv/bin/act $(CI_TOOLS)/bin/act
	for tool in node prism gitlab-ci-local action-validator; do \
	  ln -sf ../node_modules/.bin/$$tool $(CI_TOOLS)/bin/$$tool; done
	touch $@

clean:
	rm -rf $(VENV) .venv-npu build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

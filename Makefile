# `make probe` and `make test` are all that a newcomer types; each sets up what it needs, once.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= runs/gpu-check

.DEFAULT_GOAL := help
.PHONY: help probe test lint check-reports gpu-check gpu-test gpu-run gpu-util-run gpu-step-run gpu-peers-run gpu-baseline-run clean

help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# Remade when what is to be installed changes; otherwise a second run starts at once.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a minute or two, once) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,dev]'
	@touch $@

probe: $(STAMP) ## probe the fused path: a run, its report and the verdict
	@$(BIN)/python -m kdaprof probe --path fused

test: $(STAMP) lint ## ruff, the import arrows, mypy --strict and pytest
	$(BIN)/python -m pytest -q

lint: $(STAMP) ## ruff, the import arrows and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --cache-dir .import_linter_cache
	$(BIN)/mypy

check-reports: $(STAMP) ## recompute every committed figure from its samples
	@$(BIN)/python -m kdaprof report $$(find reports -name run.json -exec dirname {} + | sort) --check

# On a machine that brings its own torch, as a container image does: make gpu-check GPU_PYTHON=python3
GPU_PYTHON ?= $(BIN)/python

gpu-check: gpu-test gpu-run ## on a GPU: its tests, then the probe of all paths, phases and modes into OUT

gpu-test: ## the tests that need a GPU
	$(GPU_PYTHON) -m pytest -q -m gpu tests/gpu

gpu-run: ## the run that goes into reports/ (default OUT=runs/gpu-check)
	$(GPU_PYTHON) -m kdaprof probe --paths fused,tensor,tensor-rows,compiled --phases fwd,bwd,fwdbwd \
	  --modes eager,graph --samples 8 --cold --anonymous --force --out $(OUT)

# 373 s on an H200, of which FLA compiles and tunes its kernels for 277 s in its first calls; what it finds stays on disk for
# the profiled repeats' process.
gpu-peers-run: ## the run that goes into reports/h200-kda-peers: FLA beside our paths (needs fla-core and einops)
	FLA_DISABLE_BACKEND_DISPATCH=1 TRITON_CACHE_AUTOTUNING=1 $(GPU_PYTHON) -m kdaprof probe --preset production \
	  --paths fused,tensor,fla --phases fwd,fwdbwd --modes eager,graph --samples 8 --util-seconds 3 --anonymous --force \
	  --out $(OUT)

gpu-util-run: ## the watches that go into reports/h200-gpu-util: idle, and both paths in loops
	$(GPU_PYTHON) probes/sampled_utilisation.py $(OUT)

# On an H200: 187 s for the probe, 47 and 44 s for the sweeps.
# A cell that fails makes the target fail, behind everything else.
STEP_MODES := eager,graph,fused:graphed-callables,fused:reduce-overhead
gpu-step-run: ## the training step on a GPU: attribution, modes, cold steps, sweeps, into OUT, OUT-batch and OUT-max-iter
	@rc=0; \
	$(GPU_PYTHON) -m kdaprof probe --workload step --preset b8 --paths fused,tensor --ablate kda,iters \
	  --modes $(STEP_MODES) --samples 4 --cell-seconds 4 --util-seconds 1.5 --cold --anonymous --force \
	  --out $(OUT) || rc=$$?; \
	$(GPU_PYTHON) -m kdaprof sweep --over batch=1,2,4,8,16,32 --path fused --anonymous --force \
	  --out $(OUT)-batch || rc=$$?; \
	$(GPU_PYTHON) -m kdaprof sweep --over max_iter=1,2,3,4,6,8 --path fused --anonymous --force \
	  --out $(OUT)-max-iter || rc=$$?; \
	exit $$rc

# Three runs, 220 s on an H200: the op (120 s with its start), attention (45), the matrix product (50).
gpu-baseline-run: ## a field report's sections 1 to 3 on a GPU, into OUT, OUT-attention and OUT-gemm, then its tables
	@rc=0; \
	$(GPU_PYTHON) -m kdaprof probe --paths fused,tensor --phases fwd,bwd,fwdbwd --modes eager,graph --samples 8 \
	  --cell-seconds 3 --util-seconds 0 --anonymous --force --out $(OUT) || rc=$$?; \
	$(GPU_PYTHON) probes/attention_backends.py --anonymous --force --out $(OUT)-attention || rc=$$?; \
	$(GPU_PYTHON) probes/gemm_precisions.py --anonymous --force --out $(OUT)-gemm || rc=$$?; \
	$(GPU_PYTHON) -m kdaprof report $(OUT) $(OUT)-attention $(OUT)-gemm --tables field || rc=$$?; \
	$(GPU_PYTHON) -m kdaprof roofline --run $(OUT) || rc=$$?; \
	exit $$rc

clean: ## remove the environment and the caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info

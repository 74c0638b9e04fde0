# Everything a person needs: `make demo` to see it, `make test` to trust it. No target needs another to have run.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
LLAMACPP := .venv-llamacpp
ARGS ?=

# The first interpreter on the path that is new enough; override with `make PYTHON=/path/to/python ...`.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

.PHONY: help demo test test-llamacpp test-slow check faults bench explain llamacpp tree pages clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/runtime ## see a real model write the same text sooner
	@$(BIN)/outrider demo $(ARGS)

explain: $(VENV)/runtime ## one round, step by step, without any model
	@$(BIN)/outrider explain $(ARGS)

test: $(VENV)/dev ## the whole test suite (ARGS="-k name" narrows it)
	@$(BIN)/python -m pytest $(ARGS)

test-llamacpp: $(LLAMACPP)/base ## the llama.cpp backend, built once and kept in the cache; its own tests and the suite's on it
	@$(LLAMACPP)/bin/python -m outrider.targets.llamacpp.build; status=$$?; \
	if [ $$status = 3 ]; then echo "llama.cpp is not tested: there is no compiler to build it with"; exit 0; fi; \
	[ $$status = 0 ] && OUTRIDER_TEST_LLAMACPP=1 $(LLAMACPP)/bin/python -m pytest tests/llamacpp $(ARGS)

test-slow: $(VENV)/dev ## statistics in depth, large models, soak
	@$(BIN)/python -m pytest -m slow $(ARGS)

check: $(VENV)/dev ## style, types, and the tests with warnings as errors
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m pyright
	$(BIN)/python -m pytest -W error $(ARGS)

faults: $(VENV)/dev ## break the code on purpose; the suite must notice every time
	@$(BIN)/python -m tests.faults $(ARGS)

bench: $(VENV)/runtime ## speed against plain decoding and transformers, beside the equality check
	@$(BIN)/outrider bench $(ARGS)

llamacpp: $(VENV)/runtime ## build llama.cpp for GGUF files: optional, some minutes once, then kept in the cache
	@$(BIN)/python -m outrider.targets.llamacpp.build $(ARGS)

tree: $(VENV)/dev ## write the README's file tree
	@$(BIN)/python tests/readme_tree.py

pages: $(VENV)/dev ## write docs/drafters, a page for every drafter
	@PYTHONPATH=src $(BIN)/python tests/drafter_pages.py

clean: ## remove the virtual environments
	rm -rf $(VENV) $(LLAMACPP)

# The stamps hold the checksum of what was installed, so that an environment is renewed when the pins change, whatever
# the files' dates, and costs nothing when they did not.
RUNTIME_PINS := requirements.txt pyproject.toml
DEV_PINS := requirements-dev.txt $(RUNTIME_PINS)

.PHONY: $(VENV)/runtime $(VENV)/dev
$(VENV)/runtime:
	@$(call install,requirements.txt,$(RUNTIME_PINS),$@)
$(VENV)/dev: $(VENV)/runtime
	@$(call install,requirements-dev.txt,$(DEV_PINS),$@)

# A second environment that sees everything of the first, so that the suite also runs where llama.cpp is not installed.
.PHONY: $(LLAMACPP)/base
$(LLAMACPP)/base: $(VENV)/dev
	@set -e; packages="$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; \
	link=$(LLAMACPP)/lib/$$(basename $$(dirname $$packages))/site-packages/base.pth; \
	if [ "$$(cat $$link 2>/dev/null)" != "import site; site.addsitedir('$$packages')" ]; then \
		$(BIN)/python -m venv --clear --without-pip $(LLAMACPP); \
		echo "import site; site.addsitedir('$$packages')" > $$link; fi

# install(requirements file, files that matter, stamp)
define install
set -eo pipefail; \
sum="$$(cat $(2) | cksum) $$(pwd)"; \
if [ -x $(BIN)/python ] && $(BIN)/python -c '' 2>/dev/null && [ "$$(cat $(3) 2>/dev/null)" = "$$sum" ]; then exit 0; fi; \
if [ -z "$(PYTHON)" ]; then echo "Outrider needs Python 3.11 or newer; none was found on the path" >&2; exit 2; fi; \
if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	echo "making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); fi; \
echo "installing the pinned packages of $(1) (the first time takes some minutes)"; \
if [ -t 1 ]; then $(BIN)/python -m pip install --disable-pip-version-check -r $(1); else \
	$(BIN)/python -m pip install --disable-pip-version-check -r $(1) | \
	awk '/^Collecting|^ *Downloading .*MB|^Installing/ { sub(/ \(from .*/, ""); print "  " substr($$0, 1, 76); fflush() }'; fi; \
$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --editable .; \
echo "$$sum" > $(3)
endef

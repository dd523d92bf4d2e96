# Two commands on a fresh machine: `make demo` and `make test`. Each sets itself up; a second run starts in seconds.
PYTHON ?= python3
VENV := .venv
DEVICE := $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
INSTALLED := $(VENV)/.installed-$(DEVICE)
PYTEST_ARGUMENTS ?=

.PHONY: demo test check proofs wire chart setup debian clean

demo: $(INSTALLED)
	@$(VENV)/bin/rollcast demo

test: $(INSTALLED) debian
	@$(VENV)/bin/python -m pytest $(PYTEST_ARGUMENTS)

check: $(INSTALLED)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

# The chart's checks that need more than a checkout: operators' definitions, checkov, package indexes.
proofs: $(INSTALLED)
	@requirements/proofs.sh $(PYTHON) $(VENV)

setup: $(INSTALLED)

# Protobuf code from proto/; the tests notice when it was forgotten.
wire: $(INSTALLED)
	$(VENV)/bin/python -m grpc_tools.protoc -Iproto --python_out=services --pyi_out=services \
		--grpc_python_out=services proto/rollcast/wire/*.proto
	rm services/rollcast/wire/rollout_pb2_grpc.py

# What is made from values, settings, recipes and dependencies; the tests notice when it was forgotten.
chart: $(INSTALLED)
	$(VENV)/bin/python helm/values_schema.py
	$(VENV)/bin/python helm/readme.py
	$(VENV)/bin/python helm/recipes.py
	$(VENV)/bin/python helm/manifests.py
	$(VENV)/bin/python requirements/closure.py

$(INSTALLED): requirements/$(DEVICE).txt pyproject.toml requirements/install.sh
	@requirements/install.sh $(PYTHON) $(VENV) $(DEVICE)
	@touch $@

# Servers and a browser that only tests use; where they cannot be installed those tests are skipped, and say so.
debian:
	@requirements/debian.sh

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Two commands on a fresh machine: `make demo` and `make test`. Each sets itself up; a second run starts in seconds.
PYTHON ?= python3
VENV := .venv
DEVICE := $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
INSTALLED := $(VENV)/.installed-$(DEVICE)
PYTEST_ARGUMENTS ?=

.PHONY: demo test check wire setup debian clean

demo: $(INSTALLED)
	@$(VENV)/bin/rollcast demo

test: $(INSTALLED) debian
	@$(VENV)/bin/python -m pytest $(PYTEST_ARGUMENTS)

check: $(INSTALLED)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

setup: $(INSTALLED)

# Protobuf code from proto/; the tests notice when it was forgotten.
wire: $(INSTALLED)
	$(VENV)/bin/python -m grpc_tools.protoc -Iproto --python_out=services --pyi_out=services \
		--grpc_python_out=services proto/rollcast/wire/*.proto
	rm services/rollcast/wire/rollout_pb2_grpc.py

$(INSTALLED): requirements/$(DEVICE).txt pyproject.toml requirements/install.sh
	@requirements/install.sh $(PYTHON) $(VENV) $(DEVICE)
	@touch $@

# Servers and a browser that only tests use; where they cannot be installed those tests are skipped, and say so.
debian:
	@requirements/debian.sh

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

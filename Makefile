# Two commands on a fresh machine: `make demo` and `make test`. Each sets itself up; a second run starts in seconds.
# While one works: `make near` after every change, `make check` before a commit, `make test` before a merge.
PYTHON ?= python3
VENV := .venv
DEVICE := $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
INSTALLED := $(VENV)/.installed-$(DEVICE)
PYTEST_ARGUMENTS ?=
# Packages are installed without bytecode. A container that forbids to write it would compile vLLM at each of its starts.
export PYTHONDONTWRITEBYTECODE :=
# Commit that `make near` compares with; empty: the merge base of origin/main, or of main on another branch; else HEAD~1.
SINCE ?=
# Proofs that `make proofs` runs; empty: those that are due; all: every one.
PROOFS ?=

.PHONY: demo test near durations style check proofs release-proofs images-proof cluster-proof wire chart manifests docs setup debian clean

demo: $(INSTALLED)
	@$(VENV)/bin/rollcast demo

# The core tests, then the proofs that are due: all that a change may break.
test: $(INSTALLED) style debian
	@$(VENV)/bin/python -m testkit.suite.whole $(PYTEST_ARGUMENTS)

# The tests nearest to what changed, in at most 40 seconds.
near: $(INSTALLED)
	@$(VENV)/bin/python -m testkit.suite.near $(if $(SINCE),--since $(SINCE))

# Proofs that are due; writes tests/proofs.json.
proofs: $(INSTALLED) debian
	@$(VENV)/bin/python -m testkit.suite.prove $(PROOFS)

# Every test, and tests/durations.json from it: by that a call decides what starts first.
durations: $(INSTALLED) debian
	@$(VENV)/bin/python -m testkit.suite.record_durations

style: $(INSTALLED)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .

# Each keeps a cache: a second run looks only at what has changed. `make test` leaves these two to tests/test_types.py,
# because each takes one core.
check: $(INSTALLED) style
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# Before a release: what needs more than a checkout (operators' definitions, checkov, package indexes, S3, real loggers).
release-proofs: $(INSTALLED)
	@requirements/release_proofs.sh $(PYTHON) $(VENV)

# Images built by buildah, and the demo's task run from their file systems: as root, on Debian (docs/releases.md).
images-proof: $(INSTALLED)
	@$(VENV)/bin/python -m benchmarks.images

# The chart on the cluster that KUBECONFIG names, from install to uninstall (docs/releases.md).
cluster-proof: $(INSTALLED)
	@$(VENV)/bin/python -m benchmarks.cluster

setup: $(INSTALLED)

# Protobuf code from proto/; the tests notice when it was forgotten.
wire: $(INSTALLED)
	$(VENV)/bin/python -m grpc_tools.protoc -Iproto --python_out=services --pyi_out=services \
		--grpc_python_out=services proto/rollcast/wire/*.proto
	rm services/rollcast/wire/rollout_pb2_grpc.py

# What is made from values, settings, recipes and dependencies; the tests notice when it was forgotten.
chart: $(INSTALLED)
	$(VENV)/bin/python helm/added_values.py
	$(VENV)/bin/python helm/values_schema.py
	$(VENV)/bin/python helm/readme.py
	$(VENV)/bin/python helm/recipes.py
	$(VENV)/bin/python requirements/closure.py

# k8s/PROFILE/rollcast.yaml, which is not committed: the chart rendered for clusters without Helm.
manifests: $(INSTALLED)
	$(VENV)/bin/python helm/manifests.py

# The pages made from code, the notebooks run again, and the site in site/; a warning or a dead link ends it.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(INSTALLED)
	@$(VENV)/bin/python -m pip install -q -r requirements/docs.txt
	$(VENV)/bin/python -m documents
	$(VENV)/bin/python docs/notebooks/run.py
	$(VENV)/bin/mkdocs build --quiet --strict

$(INSTALLED): requirements/$(DEVICE).txt pyproject.toml requirements/install.sh
	@requirements/install.sh $(PYTHON) $(VENV) $(DEVICE)
	@touch $@

# Servers and a browser that only tests use; DEBIAN=0 installs none, and tests that miss one are skipped and name it.
debian:
	@requirements/debian.sh

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .cache

# A newcomer needs two commands: `make demo` and `make test`. `make help` lists the others.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Python keeps what it compiled, also where an image switches that off: each of some hundred short processes of a test
# run would compile all it imports again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## Show this help
	@echo "Dovetail: GPU jobs that fit together on Kubernetes"
	@echo
	@awk 'BEGIN {FS = ":.*## "} /^## / {printf "\n%s\n", substr($$0, 4)} /^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## Try it
.PHONY: demo demo-down
demo: $(STAMP) ## A real control plane with simulated GPUs, and a mix of jobs on it
	$(BIN)/dovetail demo
demo-down: $(STAMP) ## Stop the demo, and remove its processes and files
	$(BIN)/dovetail demo --down

# What depends most on the version of Kubernetes: objects and CRDs, the extender's protocol, webhook and policies, the Job
# controller under gangs and arrays, shares, Bindings.
ON_EACH_VERSION := $(addprefix tests/cluster/test_,$(addsuffix .py,chart admission lifecycle attach extender \
  certificates agent ownership drivers at_rest))

# Four wait on a control plane most of the time; the fifth computes. See docs/testing.md.
WORKERS ?= 5
# A test that fails while all others run is tried once more, and named as RERUN in the report: that is a fault to cure, not
# a reason to throw a change away.
RERUNS ?= 1

## Prove it
.PHONY: test lint types bytecode unit cluster chart e2e e2e-versions e2e-install mutants mutants-changed bench bench-queue bench-hotpath bench-agent soak stalls observe hardware simulate
test: $(STAMP) ## All checks: lint, types, unit, property and a short cluster suite (minutes)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint types bytecode
	$(BIN)/dovetail sandbox fetch --real-node kubeconform actionlint
	@left_out=$$($(BIN)/python -m tests.affected); set -x; \
	  $(BIN)/pytest -m "not slow" -n $(WORKERS) --reruns $(RERUNS) -rfER --dist loadscope --ignore=tests/style $$left_out
lint: $(STAMP) ## Formatting, ruff, the import contracts, and the style of the text and of signatures
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/style
types: $(STAMP) ## mypy, strict
	$(BIN)/mypy
bytecode: $(STAMP) ## Compile what the tests import: otherwise each of the processes that run them compiles all of it
	@$(BIN)/pytest -m "not slow" --collect-only -qq --ignore=tests/style >/dev/null 2>&1 || true
unit: $(STAMP) ## Only the tests without a cluster (seconds)
	$(BIN)/pytest -m "not cluster and not slow"
cluster: $(STAMP) ## Only the short cluster suite
	$(BIN)/pytest -m "cluster and not slow"
e2e: $(STAMP) ## Everything on a real control plane, all slow tests, and all that a change may leave out of make test
	$(BIN)/pytest -m "cluster or slow or optional"
e2e-versions: $(STAMP) ## A set of cluster tests on each minor version of Kubernetes: make e2e-versions VERSIONS="1.34 1.37"
	@for each in $(or $(VERSIONS),1.34 1.35 1.36 1.37); do \
	  echo "== Kubernetes $$each"; $(BIN)/dovetail sandbox fetch --kubernetes "$$each" || exit 1; \
	  DOVETAIL_TEST_KUBERNETES=$$each $(BIN)/pytest -m "not slow" $(ON_EACH_VERSION) || exit 1; \
	done
	$(BIN)/pytest tests/chart/test_kubernetes_versions.py
chart: $(STAMP) ## The chart alone: helm lint, presets and values, kubeconform, policies, alerts and dashboards by their tools
	$(BIN)/dovetail sandbox fetch helm kubeconform
	$(BIN)/pytest tests/chart
e2e-install: $(STAMP) ## Build the images, and install the chart on a real node with Helm; -s prints times and sizes
	images/build.sh >/dev/null
	$(BIN)/pytest -s tests/installation
mutants: $(STAMP) ## Insert small bugs one by one, and report which ones the tests find: make mutants OF=dovetail.queue SAMPLE=100
	$(BIN)/python -m tools.mutants $(OF) --sample $(or $(SAMPLE),0) --seed $(or $(SEED),1) --jobs $(or $(JOBS),1) $(ARGS)
mutants-changed: $(STAMP) ## A sample of the mutants of the lines that this change has, two minutes at most; it fails nothing
	$(BIN)/python -m tools.mutants.changed
bench: $(STAMP) ## The benchmarks, some 20 minutes on two cores; results as tables and JSON in out/
	@mkdir -p out
	@for each in extender_http kube_cache list_commands extender_scale end_to_end "replay_pack --limit-nodes 40"; do \
	  echo "== $$each"; set -- $$each; one=$$1; shift; \
	  $(BIN)/python benchmarks/$$one.py "$$@" || exit 1; \
	done

bench-queue: $(STAMP) ## The queue: 15,000 jobs, 4,000 jobs to running, gangs, policies, guarantees, several clusters; results in out/
	@mkdir -p out
	@for each in queue_admission queue_running queue_gang queue_policies quota_reclaim quota_month fleet; do \
	  echo "== $$each"; $(BIN)/python benchmarks/$$each.py || exit 1; \
	done

bench-hotpath: $(STAMP) ## The targets of cost in at most 15 minutes: make bench-hotpath OTHER=checkout; table, JSON in out/, exit 1 if one is missed
	@mkdir -p out
	$(BIN)/python benchmarks/hotpath.py $(if $(OTHER),--other $(OTHER))

bench-agent: $(STAMP) ## The agent: its cost on the node, and the cost of 5,000 agents for the API server
	@mkdir -p out
	$(BIN)/python benchmarks/agent_cost.py
	$(BIN)/python benchmarks/agent_writes.py

stalls: $(STAMP) ## Tests on a control plane while each program is stopped for random spans: make stalls ARGS=tests/cluster/test_queue.py
	$(BIN)/python -m tools.stalls -- $(BIN)/pytest -m "cluster and not slow" -n $(WORKERS) --dist loadscope $(ARGS)

soak: $(STAMP) ## Two hours of jobs while programs are killed, paused and cut off: make soak MINUTES=20; report in out/
	$(BIN)/python -m tools.soak --minutes $(or $(MINUTES),120) $(ARGS)

observe: $(STAMP) ## A real Prometheus scrapes a sandbox: every panel's query, every rule, and promtool on the alerts
	$(BIN)/pytest tests/chart/test_alerts.py tests/chart/test_dashboards.py tests/cluster/test_observe.py

hardware: $(STAMP) ## As root on a machine with NVIDIA devices: measure what they really do, for docs/hardware.md
	$(BIN)/python benchmarks/hardware.py

simulate: $(STAMP) ## The placement policies on a trace: make simulate TRACES=folder (a generated one without)
	@mkdir -p out
	$(BIN)/python benchmarks/simulator.py $(if $(TRACES),--traces $(TRACES))

## Work on it
.PHONY: install format crds proto lock console pictures docs release hooks clean
install: $(STAMP) ## Create the virtual environment with all dependencies
$(STAMP): pyproject.toml requirements.lock
	@echo "Installing into $(VENV) (less than a minute the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# uv takes seconds where pip takes a minute; pip brings it, and tells it which index is configured.
	@awk '/^[^ ]/ {on = /^uv==/} on' requirements.lock > $(VENV)/uv.lock
	@$(BIN)/python -m pip install --quiet --require-hashes -r $(VENV)/uv.lock
	@index=$$($(BIN)/python -m pip config get global.index-url 2>/dev/null || echo "$${PIP_INDEX_URL:-}"); \
	  [ -z "$$index" ] || export UV_DEFAULT_INDEX="$$index"; \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock; \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $(STAMP)
format: $(STAMP) ## Format the code, and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
crds: $(STAMP) ## Generate the CRDs and openapi.json from the API types
	$(BIN)/python -m dovetail.api.crd helm/dovetail/crd-files
	$(BIN)/python -m tests.gateway.openapi
proto: $(STAMP) ## Generate kubelet's messages from their .proto files
	$(BIN)/python -m grpc_tools.protoc --proto_path=node_agent/dovetail_agent/kubelet_v1 \
		--python_out=node_agent/dovetail_agent/kubelet_v1 --pyi_out=node_agent/dovetail_agent/kubelet_v1 \
		podresources.proto pluginregistration.proto csi.proto
lock: $(STAMP) ## Resolve the dependencies into requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra all --group dev --group docs --universal --python-version 3.11 \
		--generate-hashes --no-header --quiet --output-file requirements.lock
console: $(STAMP) ## Build the live console's files into the cache, and print the folder
	$(BIN)/python -m dovetail_gateway.console.build
pictures: $(STAMP) ## Take the pictures of the console's pages in docs/images, and of all of them in build/pictures; needs chromium and fonts-noto-cjk
	DOVETAIL_PICTURES=docs/images DOVETAIL_PICTURES_OF_ALL=build/pictures $(BIN)/pytest tests/pictures
docs: $(STAMP) ## The documentation as a site in out/site, with references of the CRDs and the Python packages
	$(BIN)/python -m tools.site
release: $(STAMP) ## All that a release publishes, in dist/: make release ONLY=packages TAG=v0.2.0 REGISTRY=registry.example/dovetail
	$(BIN)/python -m tools.release build $(if $(ONLY),--only $(ONLY)) $(if $(TAG),--tag $(TAG)) $(if $(REGISTRY),--registry $(REGISTRY))
hooks: $(STAMP) ## Let git run the fast checks before each commit
	$(BIN)/pre-commit install
clean: ## Remove what was built here; binaries in the cache stay
	rm -rf $(VENV) dist build out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.DEFAULT_GOAL := help
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
PYTHON ?= python3
ARGS ?=

.PHONY: help
help: ## List the targets.
	@echo 'make TARGET [ARGS="..."] [PYTHON=python3.12]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo 'ARGS go to the program behind the target: make test-unit ARGS="-k superiority", make demo ARGS="--kubeconfig ~/.kube/config".'

.PHONY: venv
venv: ## Make .venv, the one environment for development, tests, CI and the rig; at once where nothing changed.
	@$(PYTHON) .ci/install all --venv .venv

.PHONY: rig
rig: venv ## Build the programs of the rig: at once where they are cached.
	@PYTHONPATH=tests .venv/bin/python -m minicluster build

.PHONY: demo
demo: venv ## Tell the whole story on a real control plane: traffic, candidates, verdicts, refusals, a rollback. ARGS="--kubeconfig FILE": on another cluster.
	@.venv/bin/python -m demo $(ARGS)

.PHONY: test
test: lint rig ## Lint, then every test, cluster tests beside the others. ARGS="--kubeconfig FILE": against another cluster.
	.venv/bin/pytest --numprocesses 2 --dist loadscope $(ARGS)

.PHONY: test-unit
test-unit: venv ## Tests of pure code (under a minute).
	.venv/bin/pytest tests/unit $(ARGS)

.PHONY: test-component
test-component: venv ## One component each over fakes at its ports: trainer on the tiny base, middleware over a scriptable engine.
	.venv/bin/pytest tests/component $(ARGS)

.PHONY: test-cluster
test-cluster: rig ## On a real control plane, with real vLLM.
	.venv/bin/pytest tests/cluster $(ARGS)

.PHONY: lint
lint: venv ## ruff, mypy, the layers of the house, and whether generated files are as their source says.
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/gatevalve-codegen --check

.PHONY: format
format: venv ## Format the code and mend what ruff can mend.
	.venv/bin/ruff check --fix-only
	.venv/bin/ruff format

.PHONY: generate
generate: venv ## Write CRDs, their copies in the chart, and reference tables anew from the contracts.
	.venv/bin/gatevalve-codegen

.PHONY: lock
lock: venv ## Resolve the locks anew. ARGS="--upgrade": with the newest versions; ARGS="--upgrade-package NAME": of one.
	.ci/lock $(ARGS)

.PHONY: cluster
cluster: venv ## Start the development cluster "dev" and print how to reach it.
	@PYTHONPATH=tests .venv/bin/python -m minicluster up --name dev $(ARGS)

.PHONY: cluster-down
cluster-down: venv ## Stop the development cluster and remove its data.
	@PYTHONPATH=tests .venv/bin/python -m minicluster down --name dev $(ARGS)

.PHONY: clean
clean: ## Remove what make made in this clone: environment, caches, output. The user's caches of uv and of the rig's binaries stay.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist demo/out tests/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

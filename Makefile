# Two commands matter: `make demo` and `make test`. Each sets up what it needs: Python 3.11+, Java 17 and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export HEADRACE_JARS ?= $(CURDIR)/.setup/jars
# Compiled modules are kept, whatever the surroundings say: without them each process compiles all that it imports, a command for
# half a second, a task of Airflow's for three.
export PYTHONDONTWRITEBYTECODE :=
# Workers that share a run: two more than there are cores, as most tests wait, with 4 GB of memory for each; two to four. Each has
# servers of its own.
WORKERS ?= $(shell $(PYTHON) -c "import os; pages = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'); print(max(2, min(4, len(os.sched_getaffinity(0)) + 2, pages >> 32)))")
# Seeds of `make simulate`, for each scenario.
SEEDS ?= 10000
# What `make monitoring` scrapes: [metrics] listen of edges and bridges, as `headrace edge new` and `bridge new` write it.
TARGETS ?= 127.0.0.1:9187 127.0.0.1:9188
# A call into a library that hangs and lets no other thread run is beyond pytest-timeout: the worker ends, and its test has failed.
HANGS := -o faulthandler_timeout=1500 -o faulthandler_exit_on_timeout=true
SHARED := $(HANGS) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
RINGS := tests/simulation tests/contract tests/integration tests/hostile tests/end_to_end
# Minutes of `make fuzz`, for each target.
MINUTES ?= 10
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-fraud dist test test-long test-share test-cluster test-upgrade test-kubernetes test-consumers test-readers debezium-engine test-debezium test-servers test-object-store test-registry prove-log-store object-store-jars check fmt lint type unit contract integration e2e fuzz fuzz-compiled simulate bench bench-lake bench-peers bench-bridge pins docs monitoring test-monitoring test-console console-pictures clean

help: ## List what can be done
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .setup/python ## Install Python packages into .venv and fetch the jars (once)
	@$(MAKE) --silent --jobs 2 .setup/ready

.setup/python: requirements.txt infra/images/build.txt pyproject.toml setup.py $(wildcard edge/compiled/*.[ch])
	@mkdir -p .setup
	@echo "headrace: installing Python packages into $(VENV) (once; a few minutes)"
	@$(PYTHON) -c 'import sys; sys.exit("headrace needs Python 3.11 or newer, this is %s; set PYTHON=" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# What compiles packages that have no wheel is pinned too: pip's own environments for builds fetch it without a hash.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r infra/images/build.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --use-pep517 --require-hashes -r requirements.txt
	@rm -f edge/*/row_json*.so
	@env -u HEADRACE_COMPILED $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index -e .
	@ls edge/compiled/row_json*.so >/dev/null 2>&1 || echo "headrace: without a C compiler and Python's headers the edge decodes rows in Python alone, more slowly"
	@touch $@

# What does not need the archive of classes is fetched while that is made.
.setup/ready: .setup/demo .setup/jars-tests .setup/log-store .setup/debezium-engine
	@touch $@

.setup/jars-tests: .setup/jars-demo tests/servers/jars.py tests/servers/jars.sha256
	@$(BIN)/python -m tests.servers.jars tests
	@touch $@

.setup/jars-demo: .setup/python infra/local/jars.py infra/local/jars.sha256
	@command -v java >/dev/null || { echo "headrace needs Java 17 on PATH"; exit 1; }
	@echo "headrace: fetching jars into .setup/jars (once)"
	@$(BIN)/python -m infra.local.jars demo
	@touch $@

.setup/serve: .setup/jars-demo $(wildcard spark_jobs/serve/*.java) spark_jobs/log_store/FileLogStore.java infra/release/java_build.py
	@$(BIN)/python -m infra.release.java_build file-log-store serve
	@touch $@

.setup/demo: .setup/jars-demo .setup/serve spark_jobs/jvm_warmup.py infra/release/java_build.py
	@$(BIN)/python -m infra.release.java_build archive
	@touch $@

demo: .setup/demo ## The main job on real input: three regions, edges, bridge, Kafka, Spark, Airflow, proof
	@$(BIN)/headrace demo --keep

demo-fraud: .setup/demo ## Frauds among card transactions, found in the stream; alerts back to branches (examples/fraud); FRAUD="--seconds 30"
	@$(BIN)/python examples/fraud/demo.py $(FRAUD)

check: .setup/python lint type unit ## The gate before every commit: lint, types, unit tests

fmt: .setup/python ## Format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix --quiet .

lint: .setup/python
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .

type: .setup/python
	@$(BIN)/mypy --no-error-summary

unit: .setup/python ## Unit tests: no servers
	@$(BIN)/python -m pytest -q --numprocesses $(WORKERS) --dist loadfile tests/unit

contract: setup ## Contract tests: one suite per port, run against every implementation
	@$(BIN)/python -m pytest -q tests/contract

integration: setup ## Integration tests: one real server at a time
	@$(BIN)/python -m pytest -q tests/integration

e2e: setup ## End-to-end tests: the whole pipeline, with kills
	@$(BIN)/python -m pytest -q tests/end_to_end

fuzz: .setup/python ## Foreign bytes inside valid forms, at every decoder, MINUTES= for each, with a new seed, which is printed
	@$(BIN)/python -m tests.hostile.fuzz --minutes $(MINUTES)

fuzz-compiled: .setup/python ## The edge's compiled module under AddressSanitizer, beside Python: MINUTES= (gcc)
	@$(BIN)/python -m tests.hostile.fuzz_row_json --minutes $(MINUTES)

simulate: .setup/python ## The protocol under simulation: `make simulate SEEDS=100000`
	@$(BIN)/python -m tests.simulation edge whole deliveries tables requests --seeds 0:$(SEEDS) --processes $(WORKERS)

test: setup ## What must pass before a commit is published: every ring in order
	@$(MAKE) --no-print-directory --jobs 3 check
	@$(BIN)/python -m pytest --durations=40 -m "not long" $(SHARED) $(RINGS)

test-long: setup ## More faults, older tables, schedules over time, three brokers: tests that take minutes
	@$(BIN)/python -m pytest --durations=20 -m long $(SHARED) $(RINGS)

test-share: setup ## The share of the long tests that is today's: a week of it shows all of them
	@$(BIN)/python -m pytest --durations=10 --share-of-week $(SHARED) $(RINGS)

object-store-jars: .setup/log-store ## Fetch the jars for a lake on S3 into .setup/jars, and make its log store (once)

.setup/log-store: .setup/jars-demo spark_jobs/log_store/ConditionalLogStore.java infra/release/java_build.py
	@$(BIN)/python -m infra.local.jars object-store
	@$(BIN)/python -m infra.release.java_build s3-log-store
	@touch $@

.setup/object-store/ready: tests/object_store/requirements.txt
	@$(PYTHON) -m venv .setup/object-store
	@.setup/object-store/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

test-object-store: object-store-jars .setup/object-store/ready ## A lake on an S3 server: load, kill, resume, live, as of a time, maintain
	@$(BIN)/python -m pytest -q tests/object_store

.setup/registry/ready: tests/registry/requirements.txt
	@$(PYTHON) -m venv .setup/registry
	@.setup/registry/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

test-registry: setup .setup/registry/ready ## Records in Avro with a real schema registry, Apicurio, Confluent's deserializers and Debezium's JDBC sink, and next to those of its connectors (fetches 490 MB once)
	@$(BIN)/python -m tests.servers.jars registry
	@$(BIN)/python -m tests.servers.mysql
	@$(BIN)/python -m pytest -q tests/registry

prove-log-store: object-store-jars .setup/object-store/ready ## Whether LOG_STORE= loses commits of two processes on an S3 server; COMMITS= of each
	@$(BIN)/python -m pytest -q tests/object_store/prove_log_store.py

.setup/containers/ready: tests/containers/requirements.txt
	@$(PYTHON) -m venv .setup/containers
	@.setup/containers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

test-containers: setup .setup/containers/ready ## Images, and docker-compose.yml with them, by podman: load, verify, alerts, kills (root, podman, runc, mmdebstrap)
	@$(BIN)/python -m pytest -q -p no:randomly tests/containers

.setup/kubernetes/ready: tests/kubernetes/requirements.txt | .setup/python
	@mkdir -p .setup/kubernetes
	@$(PYTHON) -m venv .setup/kubernetes/python
	@.setup/kubernetes/python/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@command -v apt-get >/dev/null || { echo "no apt-get here: put etcd at .setup/kubernetes/etcd/usr/bin/etcd"; exit 1; }
	@mkdir -p .setup/kubernetes/etcd
	@cd .setup/kubernetes/etcd && apt-get download --quiet --quiet etcd-server 2>/dev/null && dpkg -x etcd-server_*.deb .
	@command -v go >/dev/null || { echo "no go here: it builds the API server"; exit 1; }
	@echo "headrace: building a Kubernetes API server (once; 10 to 20 minutes)"
	@$(BIN)/python -m tests.kubernetes.api_server .setup/kubernetes/apiserver
	@$(BIN)/python -m tests.kubernetes.strimzi .setup/kubernetes/strimzi
	@touch $@

test-kubernetes: setup .setup/kubernetes/ready ## The Helm chart and its examples: lint, schemas, an API server, pods by podman (root, go, podman, runc)
	@$(BIN)/python -m pytest -q -p no:randomly tests/kubernetes

.setup/consumers/ready: tests/consumers/requirements.txt tests/servers/jars.py | .setup/python
	@$(PYTHON) -m venv .setup/consumers
	@.setup/consumers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@$(BIN)/python -m tests.servers.jars consumers
	@touch $@

test-consumers: setup .setup/consumers/ready ## Consumers of others on a stream's topics, by their final rows: Debezium's JDBC sink, Iceberg's transform, Spark, Flink, Paimon's parser, Quix Streams, ClickHouse, Pathway, Camel, CloudEvents' SDK, MirrorMaker 2 (2.7 GB of disk)
	@$(BIN)/python -m pytest -q tests/consumers

.setup/readers/ready: tests/readers/requirements.txt
	@$(PYTHON) -m venv .setup/readers
	@.setup/readers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r infra/images/build.txt
	@.setup/readers/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --use-pep517 --require-hashes -r $<
	@touch $@

.setup/superset/ready: tests/superset/requirements.txt
	@$(PYTHON) -m venv .setup/superset
	@.setup/superset/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r infra/images/build.txt
	@.setup/superset/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --use-pep517 --require-hashes -r $<
	@touch $@

test-readers: setup .setup/readers/ready .setup/superset/ready ## DuckDB's own extension for Delta, dbt, Jupyter with Spark's client, beeline, PyHive and Superset, at what loads write (2 GB of disk)
	@$(BIN)/python -m pytest -q tests/readers tests/superset

.setup/debezium/ready: tests/debezium/requirements.txt tests/servers/mysql.py tests/servers/jars.py | .setup/python
	@$(PYTHON) -m venv .setup/debezium
	@.setup/debezium/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@$(BIN)/python -m tests.servers.jars connect
	@$(BIN)/python -m infra.local.jars debezium-mysql
	@$(BIN)/python -m infra.local.jars debezium-mariadb
	@$(BIN)/python -m tests.servers.mysql
	@touch $@

debezium-engine: .setup/debezium-engine ## Fetch Debezium's engine into .setup/jars, and compile what runs it (once)

.setup/debezium-engine: .setup/python $(wildcard edge/debezium/*.java) infra/release/java_build.py
	@$(BIN)/python -m infra.release.java_build debezium
	@touch $@

test-debezium: setup .setup/debezium/ready .setup/debezium-engine .setup/debian/ready ## The edge's records beside those of Debezium's own connectors, field by field, and its engine behind the edge
	@$(BIN)/python -m pytest -q tests/debezium

.setup/debian/ready: tests/servers/debian.py | .setup/python
	@$(BIN)/python -m tests.servers.debian
	@touch $@

test-servers: setup .setup/debian/ready ## The edge at a real MySQL 9.7 and MariaDB 11.8 of Debian's unstable packages, unpacked into .setup (apt-get; no root)
	@$(BIN)/python -m pytest -q tests/servers

test-cluster: setup ## A lake on a Spark cluster whose executors share no disk with the driver but the root
	@$(BIN)/python -m pytest -q tests/cluster

.setup/prometheus/ready:
	@mkdir -p .setup/prometheus
	@command -v apt-get >/dev/null || { echo "no apt-get here: put prometheus and promtool (2.42 or newer) on PATH"; exit 1; }
	@cd .setup/prometheus && apt-get download --quiet --quiet prometheus 2>/dev/null && dpkg -x prometheus_*.deb .
	@touch $@

monitoring: .setup/python .setup/prometheus/ready ## Prometheus with the alert rules for running parts: TARGETS="127.0.0.1:9187 127.0.0.1:9188"
	@$(BIN)/python -m tests.servers.prometheus $(TARGETS)

test-monitoring: .setup/demo .setup/prometheus/ready ## Alerts fire by their causes, done to real parts, and resolve, in a real Prometheus; the dashboard's queries have data
	@$(BIN)/python -m pytest -q -p no:randomly tests/monitoring

.setup/console/ready: tests/console/requirements.txt | .setup/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target .setup/console --require-hashes -r $<
	@command -v chromium >/dev/null || [ -n "$(CHROMIUM)" ] || { echo "put chromium on PATH (apt-get install chromium), or set CHROMIUM="; exit 1; }
	@touch $@

test-console: setup .setup/console/ready ## The console in Chromium, over a real bridge, Kafka, databases and lake (chromium, or CHROMIUM=)
	@PYTHONPATH=.setup/console $(BIN)/python -m pytest -q tests/console

console-pictures: .setup/python .setup/console/ready ## Take the pictures of docs/console.md again
	@PYTHONPATH=.setup/console $(BIN)/python -m tests.console.pictures docs/images

.setup/docs/ready: docs/requirements.txt
	@$(PYTHON) -m venv .setup/docs
	@.setup/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

docs: .setup/docs/ready ## Build the documents' site into build/docs/site; a broken link fails
	@$(PYTHON) -m infra.release.site_pages build/docs
	@NO_MKDOCS_2_WARNING=1 .setup/docs/bin/mkdocs build --strict --config-file build/docs/mkdocs.yml

test-upgrade: setup ## A pipeline of the previous release under load, upgraded part by part and back
	@$(BIN)/python -m pytest -q tests/upgrade

dist: .setup/log-store .setup/serve ## Build the sdist and the wheel, with bill of materials (CycloneDX) and checksums, into dist/
	@$(BIN)/python -m infra.release.dist dist

bench: setup ## Measure, as ratios against peers in the same run; writes build/bench.json
	@$(BIN)/python -m tests.benchmarks

bench-peers: setup ## Debezium Server and Headrace over the same WAL and binlog (fetches 780 MB once, wants Java 21); writes build/bench-peers.json
	@$(BIN)/python -m tests.benchmarks.peers

bench-lake: setup ## Measure the lake's loads, each next to its floor; writes build/bench-lake.json
	@$(BIN)/python -m tests.benchmarks.lake_loads

bench-bridge: setup ## The bridge alone: one source, many sources, take-over; writes build/bench-bridge.json
	@$(BIN)/python -m tests.benchmarks.bridge

PIN := uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate
PINS := $(PIN) pyproject.toml
pins: ## Resolve the newest versions that fit pyproject.toml (needs uv)
	@$(PINS) --all-extras -o requirements.txt
	@printf '%s\n' cffi setuptools | $(PIN) -c requirements.txt - -o infra/images/build.txt
	@$(PINS) -c requirements.txt --extra edge -o infra/images/edge.txt
	@$(PINS) -c requirements.txt --extra bridge -o infra/images/bridge.txt
	@$(PINS) -c requirements.txt --extra spark --extra airflow --extra console --extra lineage -o infra/images/lake.txt
	@echo mkdocs-material | $(PIN) - -o docs/requirements.txt
	@for each in tests/*/requirements.in; do $(PIN) $$each -o $${each%.in}.txt || exit 1; done

clean: ## Remove everything that set-up, runs and tests made
	rm -rf .setup $(VENV) .headrace build dist *.egg-info edge/postgres/*.so

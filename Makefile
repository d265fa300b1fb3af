# The commands of this repository. Each prepares what it needs by itself.
.DEFAULT_GOAL := help
.PHONY: help demo test faults guides browser flood engines arm64 requests check bench simulate install generate docs screenshots

help:           ## Show this list.
	@awk -F':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo:           ## A running fleet of one with an app in it; ONCE=1 checks it, cleans up and exits.
	@scripts/setup --demo
	@.venv/bin/python scripts/demo $(if $(ONCE),--once)

test:           ## Everything, with the real Podman, Git, registry and PostgreSQL.
	@scripts/setup --test
	@.venv/bin/python scripts/test

faults:         ## The faults of tests/faults at full length: kills at every step, long cuts, bad lines; ONLY=words picks.
	@scripts/setup --test
	@scripts/faults $(if $(ONLY),-k "$(ONLY)")

guides:         ## Every guide of docs that can be walked here, command by command, with real containers.
	@scripts/setup --test
	@HOMEPORT_GUIDES=long .venv/bin/python scripts/test e2e -- -k guides

browser:        ## The dashboard in a real browser at full length: every page over a bad line.
	@scripts/setup --test
	@HOMEPORT_BROWSER=long .venv/bin/python scripts/test e2e -- -k dashboard

flood:          ## Ten thousand tasks in ten seconds from five keys, to one Homeport with a real llama.cpp.
	@scripts/setup --test
	@HOMEPORT_FLOOD=long .venv/bin/python scripts/test e2e -- -k flood

engines:        ## The conformance of every container engine at full length, with a whole node on each.
	@scripts/setup --test
	@HOMEPORT_ENGINES=long .venv/bin/python scripts/test conformance

arm64:          ## Homeport and tests of what meets the machine on an arm64 machine that QEMU plays; some minutes.
	@scripts/setup --test
	@scripts/arm64

requests:       ## Made-up requests against every operation of the APIs, ten times as many as in make test.
	@scripts/setup --test
	@HOMEPORT_REQUESTS=long .venv/bin/python scripts/test integration conformance -- -k generated

check:          ## Format, types, imports, generated files, unit and property tests; under a minute.
	@scripts/setup --dev
	@.venv/bin/python scripts/check

bench:          ## Measure start-up, memory and push to INSTALLED beside the numbers to reach.
	@scripts/setup --bench
	@.venv/bin/python scripts/bench

simulate:       ## Simulate faults in a whole fleet: FRESH=1000 tries so many new stories, SEED=42 tells one.
	@scripts/setup --dev
	@.venv/bin/python scripts/simulate $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),150) --fresh $(or $(FRESH),50)) $(if $(ABOUT),--about $(ABOUT)) $(if $(SABOTAGE),--sabotage $(SABOTAGE))

install:        ## Install the homeport command into .venv and say how to use it.
	@scripts/setup
	@echo "  homeport is at $(CURDIR)/.venv/bin/homeport"
	@echo "  Try:  .venv/bin/homeport doctor     or put it on your path:  export PATH=\"$(CURDIR)/.venv/bin:\$$PATH\""

generate:       ## Generate stubs, types and validators from the .proto files and the API, for Python and TypeScript.
	@scripts/setup --dev
	@scripts/generate-wire
	@PYTHONPATH=src .venv/bin/python scripts/generate-typescript

screenshots:    ## Pictures of every page of the dashboard, light and dark, wide and narrow, into web/screenshots.
	@scripts/setup --test
	@.venv/bin/python scripts/screenshots

docs:           ## Generate the reference pages that are compared by a test.
	@scripts/setup --dev
	@.venv/bin/python scripts/generate-docs

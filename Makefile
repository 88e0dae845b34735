# Every target works on a fresh clone with Go, make and a C compiler (the race detector needs one). `make` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# VET=off leaves out go vet of `make test`, for those who run it anyway.
VET ?= on

# How long `make fuzz` fuzzes each target.
FUZZTIME ?= 30s

# How often `make redis-faults` repeats what the tests do to the servers, how much longer `make contention` takes, how many faults
# `make durable-faults` does, and how many bits `make cluster-faults` flips.
ROUNDS ?= $(if $(filter durable-faults,$(MAKECMDGOALS)),100,$(if $(filter cluster-faults,$(MAKECMDGOALS)),200,20))

# How many clients `make crowds` has. Twice as many files have to be allowed (ulimit -n).
CONNECTIONS ?= 10000

# How long `make soak` and `make fleet` run, by which seed, and how many requests `make soak` makes in a second. SOAK has further options,
# such as --json.
DURATION ?= 30m
SEED ?= 1
RATE ?= 200
SOAK ?=

# Every directory with a go.mod is a module that is built, tested and linted. lab/tools is not one of them: it pins the versions of
# the tools below, and has the one that generates the messages of Envoy's protocols.
MODULES := $(sort $(patsubst ./%,%,$(patsubst %/go.mod,%,$(shell find . -name go.mod \
	-not -path './lab/tools/*' -not -path '*/testdata/*' -not -path '*/node_modules/*'))))

# The program without the traces of gRPC, which nothing of it shows, is a seventh smaller: docs/decisions/0018-a-lean-program.md. The
# example with Gin needs no MessagePack, for which Gin has the package that takes longer than any other to compile. What only
# debuggers read takes a seventh of the time of compiling: tests and `go run` throw it away, and a release is built without the flag.
export GOFLAGS := $(strip $(GOFLAGS) -tags=grpcnotrace,nomsgpack -gcflags=all=-dwarf=false)
release-check packages reproducible: export GOFLAGS := $(filter-out -gcflags=%,$(GOFLAGS))

# The tools are built from the pinned sources and kept in Go's build cache. -modfile excludes a workspace.
TOOL := GOWORK=off go tool -modfile=$(CURDIR)/lab/tools/go.mod

HEADING = printf '\n== %s\n'

# $(call each,HEADING,COMMAND) runs COMMAND in every module, also after one has failed, and fails if any failed.
define each
failed=0; for module in $(MODULES); do \
	$(HEADING) "$(1): $$module"; \
	(cd "$$module" && $(2)) || failed=1; \
done; exit $$failed
endef

.PHONY: help
help: ## list the targets
	@printf 'weir: make TARGET\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@printf '\nmodules: %s\n' '$(MODULES)'

.PHONY: run
run: ## serve the policy "default" on 127.0.0.1:7070
	@go run ./cmd/weir serve

.PHONY: build
build: ## build every package, and the program as bin/weir
	@$(call each,build,go build -o /dev/null ./...)
	@$(HEADING) 'bin/weir'
	@go build -o bin/weir ./cmd/weir

# The servers that the tests of lab/interop, store/redis, durable/etcd, cmd/weir and examples/postgres run, and the benchmarks; and
# the checker of lab/verify/models. Where they cannot be installed, those fail, and no others. Tests start them by themselves, so of
# PostgreSQL the programs are enough: no cluster is made; and the services of etcd and Prometheus, of which the tests run
# promtool, are not started (policy-rc.d is how Debian asks whether they may).
.PHONY: deps
deps: ## install the servers that the tests need, if they are missing (on Debian; as root or by sudo)
	@command -v nginx >/dev/null || { \
		$(HEADING) 'installing nginx'; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n'); \
		{ $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			-o DPkg::Lock::Timeout=120 --no-install-recommends nginx-light; } || \
			echo 'nginx is missing: install it, or the tests of lab/interop fail'; \
	}
	@command -v haproxy >/dev/null && command -v apache2 >/dev/null && \
		compgen -G '/usr/share/lua/5.3/socket/http.lua' >/dev/null || { \
		$(HEADING) 'installing haproxy and apache2'; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n'); \
		may=/usr/sbin/policy-rc.d; made=no; [ -e "$$may" ] || made=yes; \
		{ $$sudo apt-get update -qq && \
			{ [ "$$made" = no ] || printf '#!/bin/sh\nexit 101\n' | $$sudo install -m 755 /dev/stdin "$$may"; } && \
			$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			-o DPkg::Lock::Timeout=120 --no-install-recommends haproxy apache2-bin lua-socket; } || \
			echo 'haproxy, apache2 or lua-socket is missing: install them, or the tests of lab/interop fail'; \
		[ "$$made" = no ] || $$sudo rm -f "$$may"; \
	}
	@command -v redis-server >/dev/null || { \
		$(HEADING) 'installing redis-server'; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n'); \
		{ $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			-o DPkg::Lock::Timeout=120 --no-install-recommends redis-server; } || \
			echo 'redis-server is missing: install it, or the tests of store/redis and cmd/weir fail'; \
	}
	@command -v etcd >/dev/null || { \
		$(HEADING) 'installing etcd-server'; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n'); \
		may=/usr/sbin/policy-rc.d; made=no; [ -e "$$may" ] || made=yes; \
		{ $$sudo apt-get update -qq && \
			{ [ "$$made" = no ] || printf '#!/bin/sh\nexit 101\n' | $$sudo install -m 755 /dev/stdin "$$may"; } && \
			$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			-o DPkg::Lock::Timeout=120 --no-install-recommends etcd-server; } || \
			echo 'etcd-server is missing: install it, or the tests of durable/etcd fail'; \
		[ "$$made" = no ] || $$sudo rm -f "$$may"; \
	}
	@command -v promtool >/dev/null || { \
		$(HEADING) 'installing prometheus'; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n'); \
		may=/usr/sbin/policy-rc.d; made=no; [ -e "$$may" ] || made=yes; \
		{ $$sudo apt-get update -qq && \
			{ [ "$$made" = no ] || printf '#!/bin/sh\nexit 101\n' | $$sudo install -m 755 /dev/stdin "$$may"; } && \
			$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			-o DPkg::Lock::Timeout=120 --no-install-recommends prometheus && \
			{ $$sudo systemctl -q disable prometheus 2>/dev/null || true; }; } || \
			echo 'promtool is missing: install prometheus, or the tests of cmd/weir fail'; \
		[ "$$made" = no ] || $$sudo rm -f "$$may"; \
	}
	@command -v chromium >/dev/null || { \
		$(HEADING) 'installing chromium'; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n'); \
		{ $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			-o DPkg::Lock::Timeout=120 --no-install-recommends chromium fonts-dejavu-core; } || \
			echo 'chromium is missing: install it, or the tests of lab/interop/browser fail'; \
	}
	@command -v node >/dev/null && command -v npm >/dev/null && command -v h2load >/dev/null || { \
		$(HEADING) 'installing nodejs, npm and nghttp2-client'; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n'); missing=nghttp2-client; \
		command -v node >/dev/null || missing="$$missing nodejs"; command -v npm >/dev/null || missing="$$missing npm"; \
		{ $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			-o DPkg::Lock::Timeout=120 --no-install-recommends $$missing; } || \
			echo 'node, npm or h2load is missing: install them, or the tests of lab/interop fail'; \
	}
	@command -v spin >/dev/null && command -v gcc >/dev/null || { \
		$(HEADING) 'installing spin and gcc'; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n'); \
		{ $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			-o DPkg::Lock::Timeout=120 --no-install-recommends spin gcc libc6-dev; } || \
			echo 'spin or gcc is missing: install them, or the tests of lab/verify/models fail'; \
	}
	@command -v systemd-analyze >/dev/null || { \
		$(HEADING) 'installing systemd'; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n'); \
		{ $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			-o DPkg::Lock::Timeout=120 --no-install-recommends systemd; } || \
			echo 'systemd-analyze is missing: install systemd, or the test of its unit in cmd/weir fails'; \
	}
	@command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || { \
		$(HEADING) 'installing postgresql'; \
		sudo=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n'); \
		none=/etc/postgresql-common/createcluster.d/none.conf; \
		{ $$sudo apt-get update -qq && $$sudo mkdir -p "$${none%/*}" && \
			echo 'create_main_cluster = false' | $$sudo tee "$$none" >/dev/null && \
			$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			-o DPkg::Lock::Timeout=120 --no-install-recommends postgresql; } || \
			echo 'postgresql is missing: install it, or the tests of examples/postgres fail'; \
		$$sudo rm -f "$$none" || true; \
	}

.PHONY: test
test: bin/ci deps ## vet and test every module with the race detector, then contention tests without it
	@bin/ci test $(if $(filter off,$(VET)),-novet) -race -contention $(MODULES)

.PHONY: test-short
test-short: bin/ci deps ## test every module without the race detector, with -short
	@bin/ci test -short $(MODULES)

.PHONY: algo-steps
algo-steps: ## compare package algo with its reference over 10 times as many random histories as make test
	@WEIR_EFFORT=10 go test -count=1 -timeout 2h -v ./algo

.PHONY: contention
contention: ## have 64 goroutines at once ask every limiter for ROUNDS (20) times as long as make test
	@cd lab/verify && WEIR_ROUNDS=$(ROUNDS) go test -count=1 -timeout 2h -run Contention -v .

.PHONY: redis-steps
redis-steps: deps ## compare the script for Redis with package algo on 10 million random steps
	@cd store/redis && WEIR_STEPS=10000000 go test -count=1 -timeout 2h -run 'TestDifferential$$' -v .

.PHONY: redis-faults
redis-faults: deps ## kill, stop, cut off and fail over servers of Redis under load, ROUNDS (20) times
	@cd store/redis && WEIR_ROUNDS=$(ROUNDS) go test -race -count=1 -timeout 2h -v . \
		-run 'Server|Sentinel|Replica|Cluster|Links|Clock|Fleet' 

.PHONY: durable-faults
durable-faults: ## kill, stop, cut off and corrupt three nodes with durable limits under load, ROUNDS (100) times
	@cd durable/etcd && WEIR_ROUNDS=$(ROUNDS) go test -count=1 -timeout 2h -run 'TestFaults$$' -v .

.PHONY: cluster-faults
cluster-faults: ## wipe a disk, flip ROUNDS (200) bits and step clocks of three nodes of the program
	@cd cmd/weir && WEIR_ROUNDS=$(ROUNDS) go test -count=1 -timeout 2h -run 'TestCluster(Wiped|Flipped|Stepped)' -v . | grep -v 'level='

.PHONY: crowds
crowds: ## have CONNECTIONS (10,000) clients of --grpc do at once what they should not, and print what memory they cost
	@cd cmd/weir && WEIR_CONNECTIONS=$(CONNECTIONS) go test -count=1 -timeout 1h -run 'TestAttackMemory$$' -v .

.PHONY: fleet
fleet: ## simulate fleets in virtual time for DURATION (30m), each by its own seed, SEED (1) and those after it
	@go test -count=1 -timeout 0 -run '^TestFleetContention$$' -v ./durable -fleet $(SEED) -fleetfor $(DURATION)

.PHONY: fleet-mutants
fleet-mutants: ## break the code in one place after the other, and simulate fleets with it until a promise is broken
	@cd durable && go test -count=1 -timeout 0 -run '^TestFleetMutants$$' -v . -args -fleetmutants

.PHONY: soak
soak: deps ## run three nodes under faults for DURATION (30m), RATE (200) requests a second, by SEED (1), and check every limit
	@go build -o bin/weir ./cmd/weir
	@go build -o bin/soak ./lab/interop/cmd/soak
	@bin/soak --duration $(DURATION) --seed $(SEED) --rate $(RATE) $(SOAK)

.PHONY: models
models: deps ## check the models of leases, owners and optimistic limits, and their mutants, over all that can happen
	@cd lab/verify && go test -count=1 -timeout 30m -run 'TestModels$$' -v ./models -full

.PHONY: fuzz
fuzz: bin/ci ## fuzz every target of every module for FUZZTIME (30s)
	@bin/ci fuzz -time $(FUZZTIME) $(MODULES)

.PHONY: fuzz-short
fuzz-short: bin/ci ## fuzz every target of every module for 1s
	@bin/ci fuzz -time 1s $(MODULES)

.PHONY: bench
bench: ## measure weir beside its peers and write docs/benchmarks.md, with all figures in docs/benchmarks/raw.md
	@go run ./lab/bench/cmd/numbers
	@go run ./lab/bench/cmd/summary docs

.PHONY: adaptive
adaptive: ## simulate limits that adapt, and draw docs/images/adaptive.svg
	@go run ./lab/bench/cmd/adaptive

.PHONY: docs
docs: bin/ci ## count the words of README.md and of the pages, and their mean in a sentence (goal: 18 or less)
	@bin/ci docs README.md docs/*.md

.PHONY: site
site: ## make the documentation site in bin/site, of the same Markdown files; every link is checked
	@go run ./docs/site bin/site

.PHONY: screenshots
screenshots: deps ## take pictures of the dashboard for docs/images
	@cd lab/interop && go test -count=1 -run 'TestScreenshots$$' -v ./browser/ -screenshots $(CURDIR)/docs/images
	@$(MAKE) picture

.PHONY: picture
picture: ## draw the first session of README.md, with the dashboard of docs/images, as docs/images/session.svg
	@go run ./lab/picture README.md docs/images/ui-overview.png docs/images/session.svg

# One run for all modules reads what they share once. One linter reads go.mod, and only that of the first module.
.PHONY: lint
lint: ## run golangci-lint on every module; the first run builds it
	@$(HEADING) 'lint'; \
	failed=0; linter=$$($(TOOL) -n golangci-lint); \
	GOWORK=$(CURDIR)/go.work "$$linter" run --config=$(CURDIR)/.golangci.yml $(MODULES:%=./%/...) || failed=1; \
	for module in $(MODULES); do \
		said=$$(cd "$$module" && GOWORK=off "$$linter" run --config=$(CURDIR)/.golangci.yml --enable-only=gomoddirectives ./... 2>&1) || \
			{ $(HEADING) "lint: $$module/go.mod"; echo "$$said"; failed=1; }; \
	done; exit $$failed

.PHONY: fmt
fmt: ## format every module with gofumpt and sort its imports
	@$(call each,format,$(TOOL) golangci-lint fmt --config=$(CURDIR)/.golangci.yml)

.PHONY: vuln
vuln: ## look every module up in Go's vulnerability database; says so if it cannot be reached
	@.ci/vuln || [ $$? = 75 ]

# The newest one whose modules the proxy has, all of them.
GORELEASER := go run github.com/goreleaser/goreleaser/v2@v2.16.0

.PHONY: release
release: ## tag VERSION (v0.1.0) in this repository, as docs/releasing.md says; pushes nothing
	@go run ./lab/release $(VERSION)

.PHONY: release-check
release-check: ## check .goreleaser.yaml, and build the program for this machine as a release has it
	@GOWORK=off $(GORELEASER) check
	@GOWORK=off $(GORELEASER) build --snapshot --clean --single-target

.PHONY: packages
packages: ## make the archive, deb, rpm, cask and SBOM of a release for linux/amd64, and look into each; uploads nothing
	@GOWORK=off .ci/packages $(GORELEASER)

# Built as pinned, like GoReleaser.
HELM := go run helm.sh/helm/v3/cmd/helm@v3.22.0

.PHONY: chart
chart: ## have Helm lint and render the chart, and compare it with the manifests; the first run builds Helm
	@cd cmd/weir && go test -count=1 -run 'TestChart' . -helm '$(HELM)'

.PHONY: reproducible
reproducible: ## build the revision in two directories as releases are built, and compare the programs
	@.ci/reproducible

.PHONY: sbom
sbom: build ## write what bin/weir is built of to bin/weir.spdx.json
	@cd lab/tools && GOWORK=off go run ./sbom -o ../../bin/weir.spdx.json ../../bin/weir

.PHONY: tidy
tidy: ## tidy go.mod and go.sum of every module
	@$(call each,tidy,GOWORK=off go mod tidy)
	@$(HEADING) 'tidy: lab/tools'
	@cd lab/tools && GOWORK=off go mod tidy

.PHONY: cover
cover: ## measure the coverage of all modules together and write coverage.html
	@$(HEADING) 'coverage'
	@go test -coverprofile=coverage.out -coverpkg=github.com/weirhq/weir/... $(MODULES:%=./%/...)
	@go tool cover -html=coverage.out -o coverage.html
	@go tool cover -func=coverage.out | tail -n 1

.PHONY: clean
clean: ## remove what the targets above have written
	@rm -rf bin dist coverage.out coverage.html

# Always built anew: Go's build cache knows better than make whether something has changed.
.PHONY: bin/ci
bin/ci:
	@go build -o bin/ci ./lab/ci

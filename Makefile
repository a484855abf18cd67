# Glovebox. `make serve` runs it and `make test` tests it; each sets up on a
# fresh clone whatever it needs beyond Go.

SHELL := /bin/bash
export GLOVEBOX_REQUIRE ?=

.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

GO      ?= go
# A clone that belongs to somebody else still has a version.
VERSION ?= $(shell git -c safe.directory='*' describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/glovebox-dev/glovebox/internal/cli.version=$(VERSION)
# Where the program begins: see internal/network/entry_linux.go.
ENTRY := github.com/glovebox-dev/glovebox/internal/network.entry
ifeq ($(shell $(GO) env GOOS),linux)
LDFLAGS += -E $(ENTRY)
endif

# gVisor starts itself again inside a directory where no dynamic loader is, so
# the program must be static. Keeping to one setting also means that gVisor,
# which is large, is compiled once: only the race detector needs cgo, and what
# it tests is built with the tag nogvisor.
export CGO_ENABLED = 0

# Programs have no paths of this machine in them. Tests and checks are compiled the same
# way, because packages are compiled again for another setting.
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)

GOLANGCI_VERSION := v2.15.0
GOLANGCI := .cache/bin/golangci-lint-$(GOLANGCI_VERSION)

# WHOLE=1 runs all that make test leaves out to stay short: see test-whole.
WHOLE ?=
# Everything but the gVisor driver and the agents, which have targets of their own.
PACKAGES = $(shell $(GO) list ./... | grep -v -e /internal/driver/gvisor -e /test/clients -e /test/browser)
# These take many minutes under the race detector, because they test whole programs; what
# they are made of has tests of its own. arch has one thread.
PLAIN = $(filter %/internal/arch $(if $(WHOLE),,%/internal/app %/internal/cli %/internal/driver/fake %/internal/driver/e2b),$(PACKAGES))
SHORT = $(if $(WHOLE),,-short)
# Two threads that fire timers of one synctest bubble crash the race detector
# of Go 1.26 (golang/go#78156). Packages with bubbles get one thread there.
BUBBLES = $(shell $(GO) list -f '{{.ImportPath}}{{"\t"}}{{.TestImports}}{{.XTestImports}}' ./internal/... | sed -n 's,\t.*testing/synctest.*,,p')

.PHONY: help
help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

.PHONY: build
build: guest terminal ## bin/glovebox: one static program with the guest in it
	$(GO) build -tags embedguest -ldflags '$(LDFLAGS)' -o bin/glovebox ./cmd/glovebox

.PHONY: guest
guest:
	GOOS=linux $(GO) build -ldflags '-s -w' -o internal/guestbin/glovebox-guest ./cmd/glovebox-guest

.PHONY: terminal
terminal:
	@internal/dashboard/npm/terminal.sh

.PHONY: serve
serve: build ## run the MCP server on 127.0.0.1:8080; ARGS="--listen :9000" adds flags
	bin/glovebox serve $(ARGS)

STAGES = components vet promql test-race test-plain test-gvisor test-clients test-browser test-unprivileged test-docker test-stranger test-release test-cross test-cluster

.PHONY: test
test: ## every kind of test; make -k test goes on after a failure
	@status=0; for stage in $(STAGES); do \
		begin=$$SECONDS; \
		$(MAKE) $$stage || { status=1; echo "test: $$stage FAILED"; }; \
		echo "test: $$stage took $$((SECONDS - begin)) s"; \
		if [ $$status = 1 ] && [[ ! "$${MAKEFLAGS%% *}" = *k* ]]; then break; fi; \
	done; exit $$status

.PHONY: test-whole
test-whole: ## test, with large data, our images, all suites under the race detector, and all scripts as an ordinary user
	@$(MAKE) test WHOLE=1

.PHONY: components
components: ## clients, images and interpreters, fetched at once
	@$(MAKE) -j3 --output-sync=target clients images interpreters

.PHONY: clients
clients: ## clients of MCP and E2B, agent frameworks, and a browser, for tests
	@test/clients.sh

.PHONY: images
images: ## what tests of images are made of
	@test/images.sh

.PHONY: interpreters
interpreters: ## Node 18 and 24 and Bun from npm, Pythons and packages from Debian, for tests
	@test/interpreters.sh

.PHONY: vet
vet:
	$(GO) vet ./...

# The tests of engines have a target of their own, which starts them.
define TESTENV
require=$${GLOVEBOX_REQUIRE:-}; require=$${require//docker/}; export GLOVEBOX_REQUIRE=$${require//podman/}; \
nodes=$$(ls $(CURDIR)/.cache/interpreters/node_modules/node*/bin/node 2>/dev/null | paste -sd: || true); \
if [ -n "$$nodes" ]; then export GLOVEBOX_NODES=$$nodes$$(command -v node | sed 's,^,:,'); fi; \
bun=$$(ls $(CURDIR)/.cache/interpreters/node_modules/bun/bin/bun 2>/dev/null || true); if [ -n "$$bun" ]; then export GLOVEBOX_BUN=$$bun; fi; \
pythons=$$(ls $(CURDIR)/.cache/interpreters/*/python3 2>/dev/null | paste -sd: || true); \
if [ -n "$$pythons" ]; then export GLOVEBOX_PYTHONS=$$pythons$$(ls /usr/bin/python3 2>/dev/null | sed 's,^,:,'); fi;
endef

.PHONY: promql
promql: ## alerts and panels of deploy/monitoring, evaluated by Prometheus's engine
	cd test/promql && $(GO) vet . && $(GO) test -timeout 5m .

RACE = CGO_ENABLED=1 $(GO) test -race $(SHORT) -p 2 -timeout 30m -tags nogvisor
.PHONY: test-race race-bubbles race-others
test-race: ## everything that needs no sandbox, under the race detector
	@test/tools.sh cc=build-essential || echo "the race detector needs a C compiler"
	@CGO_ENABLED=1 $(GO) build -race -tags nogvisor ./... # once, not by both at the same time
	@$(MAKE) -j2 --output-sync=target race-bubbles race-others

race-bubbles:
	@$(TESTENV) $(RACE) -cpu 1 -parallel 2 $(filter-out $(PLAIN),$(BUBBLES))

race-others:
	@$(TESTENV) $(RACE) $(filter-out $(BUBBLES) $(PLAIN),$(PACKAGES))

.PHONY: test-plain
test-plain: ## what the race detector blurs or makes slow: suites, bounds on memory, and images that are too much
	@test/tools.sh nginx=nginx-light || echo "several servers behind one address are not tried"
	$(TESTENV) $(GO) test -timeout 20m -tags nogvisor $(PLAIN)
	$(GO) test -tags nogvisor -run '^TestNetwork$$' ./internal/driver/kubernetes # which cgo prevents
	$(GO) test -run 'TestLargeFile|Picture' ./internal/guest/...
	$(GO) test -run 'TestMillionFiles|TestHole|TestBomb' ./internal/image

.PHONY: test-gvisor
test-gvisor: build ## the embedded sandbox, as whoever calls this
	@test/tools.sh dockerd=docker.io docker-compose xtables-legacy-multi=iptables busybox=busybox-static || echo "gvisor: Docker is not tried in a sandbox"
	@test/gvisor.sh

.PHONY: test-clients
test-clients: build clients ## agents and frameworks from npm with scripted models, against the embedded sandbox
	GLOVEBOX_TEST_BINARY=$(CURDIR)/bin/glovebox $(GO) test -count=1 -timeout 20m -parallel 4 ./test/clients $(ARGS)

.PHONY: test-browser
test-browser: build clients ## a browser on the dashboard of the embedded sandbox
	GLOVEBOX_TEST_BINARY=$(CURDIR)/bin/glovebox $(GO) test -count=1 -timeout 15m ./test/browser

.PHONY: screenshots
screenshots: ## pictures of the dashboard's pages, light and dark, in bin/screenshots
	@GLOVEBOX_SCREENSHOTS=$(CURDIR)/bin/screenshots $(MAKE) test-browser

.PHONY: clients-table
clients-table: ## the same, and the table of docs/clients.md is written anew
	@$(MAKE) test-clients ARGS=-update

.PHONY: test-unprivileged
test-unprivileged: build ## the same as an ordinary user made for it; needs root
	@test/unprivileged.sh $(if $(WHOLE),gvisor cli,gvisor cli-quick)

.PHONY: test-docker
test-docker: build ## Docker Engine and Podman, started for the purpose; needs root
	@WHOLE=$(WHOLE) test/docker.sh test/engines.sh

# Not in STAGES: Helm's library takes minutes to build, once.
.PHONY: test-chart
test-chart: ## the chart and the kustomization, rendered and checked without a cluster
	@test/tools.sh nginx=nginx-light || echo "the router's configuration is not tried"
	cd test/chart && $(GO) vet . && $(GO) test -timeout 5m .

# The suites' first groups, and kills of containerd, kubelet and the API server. The cluster has
# no network but its own, so the tests are compiled before.
.PHONY: test-cluster
test-cluster: build ## the quick half of test-kubernetes; needs root
	@$(GO) test -c -o /dev/null ./internal/driver/kubernetes
	@GLOVEBOX_REQUIRE=$(if $(findstring cluster,$(GLOVEBOX_REQUIRE)),kubernetes) test/kubernetes.sh \
		$(GO) test -count=1 -timeout 20m -run '^(TestGVisor|TestRunc|TestOutages)$$/^(Driver|Process|gvisor|runc)$$' ./internal/driver/kubernetes

# Not in STAGES: the suites of all transports take too long for each change.
.PHONY: test-kubernetes
test-kubernetes: build ## the driver on a real Kubernetes of one node, and the chart, with an installation; needs root
	@$(GO) test -c -o /dev/null ./internal/driver/kubernetes # the cluster has no other network
	@$(GO) test -C test/chart -c -o /dev/null .
	@GLOVEBOX_REQUIRE=$${GLOVEBOX_REQUIRE:+$$GLOVEBOX_REQUIRE,}kubernetes test/kubernetes.sh --policies bash -c '\
		$(GO) test -count=1 -timeout 100m ./internal/driver/kubernetes && \
		$(GO) test -C test/chart -count=1 -timeout 20m .'

.PHONY: test-stranger
test-stranger: ## install, use, update and uninstall two releases that are built for it
	@test/stranger.sh

.PHONY: test-release
test-release: ## a release for this machine's architecture alone, looked at as release-dry-run does
	@PLATFORMS=linux_$$($(GO) env GOARCH) release/dry-run.sh v0.0.0-test

.PHONY: test-cross
test-cross: ## the systems that have no embedded sandbox still build
	GOOS=darwin $(GO) vet ./...
	GOOS=darwin $(GO) build -o /dev/null ./cmd/glovebox
	GOOS=windows $(GO) vet ./...
	GOOS=windows $(GO) build -o /dev/null ./cmd/glovebox

.PHONY: test-wine
test-wine: ## tests as Windows programs, under Wine; needs root, and is not part of test
	@test/wine.sh

.PHONY: release-dry-run
release-dry-run: ## a whole release in dist/, signed with a key that is thrown away
	@release/dry-run.sh $(or $(RELEASE),v0.0.0-dry)

.PHONY: bench
bench: build images ## what a sandbox costs, beside what else there is, measured in turn
	$(GO) test -tags embedguest -ldflags '$(LDFLAGS)' -run '^$$' -bench 'ColdSandbox|Command' -benchtime $(or $(N),60)x ./internal/app
	$(GO) test -tags embedguest -ldflags '$(LDFLAGS)' -run '^$$' -bench 'ContextValue|ContextOutput' -benchtime $(or $(N),60)x ./internal/app
	$(GO) test -tags embedguest -ldflags '$(LDFLAGS)' -run '^$$' -bench ContextPlot -benchtime 5x ./internal/app
	$(GO) test -tags embedguest -ldflags '$(LDFLAGS)' -run '^$$' -bench Idle -benchtime 1x ./internal/app
	test/docker.sh $(GO) test -tags embedguest -ldflags '$(LDFLAGS)' -run '^$$' -bench Engine -benchtime $(or $(N),20)x ./internal/app
	$(GO) test -run '^$$' -bench Connection ./internal/network
	$(GO) test -tags embedguest -ldflags '$(LDFLAGS)' -run '^$$' -bench ImageCreate -benchtime $(or $(N),20)x ./internal/app
	$(GO) test -tags embedguest -ldflags '$(LDFLAGS)' -run '^$$' -bench ImageUnpack -benchtime 3x ./internal/app
	$(GO) test -tags nogvisor -run '^$$' -bench Files -benchtime 3x ./internal/app
	$(GO) test -tags embedguest -ldflags '$(LDFLAGS)' -run '^$$' -bench Search -benchtime 5x ./internal/app
	$(GO) test -tags embedguest -ldflags '$(LDFLAGS)' -run '^$$' -bench WakeByRequest -benchtime $(or $(N),100)x ./internal/app
	$(GO) test -run '^$$' -bench Snapshot -benchtime 20x ./internal/workspace
	test/docker.sh bash -c 'DOCKER_HOST=$$GLOVEBOX_TEST_DOCKER bin/glovebox bench --docker-image localhost/glovebox-test:python3 \
		--rounds $(or $(N),20) --sustain $(or $(SUSTAIN),1m) --out bin/bench.json --svg bin/bench.svg'

.PHONY: bench-scale
bench-scale: ## what one server and the driver kubernetes cost with many sandboxes: the figures of docs/guides/scale.md
	GLOVEBOX_FIGURES=1 $(GO) test -tags nogvisor -count=1 -timeout 10m -v -run '^TestTenThousandSandboxes$$' ./internal/engine
	GLOVEBOX_FIGURES=1 $(GO) test -tags nogvisor -count=1 -timeout 5m -v -run '^TestFiveThousandPods$$' ./internal/driver/kubernetes

.PHONY: bench-kubernetes
bench-kubernetes: build ## the driver kubernetes and kubectl in turn, on a cluster of one node; needs root
	@$(GO) test -c -o /dev/null ./internal/driver/kubernetes # the cluster has no other network
	GLOVEBOX_FIGURES=1 GLOVEBOX_REQUIRE=kubernetes test/kubernetes.sh $(GO) test -count=1 -timeout 20m -v -run '^TestFigures$$' ./internal/driver/kubernetes

.PHONY: bench-kwok
bench-kwok: ## the driver kubernetes with 5,000 Pods on a real API server, whose nodes run no programs; needs root
	@$(GO) test -tags nogvisor -c -o /dev/null ./internal/driver/kubernetes # the cluster has no other network
	@mkdir -p .cache/kwok
	@$(GO) build -C test/kwok -ldflags "-s -w" -o $(abspath .cache/kwok/kwok) sigs.k8s.io/kwok/cmd/kwok
	GLOVEBOX_FIGURES=1 GLOVEBOX_REQUIRE=kubernetes test/kubernetes.sh test/kwok.sh \
		$(GO) test -tags nogvisor -count=1 -timeout 40m -v -run '^TestKwok' ./internal/driver/kubernetes

.PHONY: compatibility
compatibility: build ## other projects' tests in a sandbox and here: the table of docs/compatibility.md; takes half an hour
	@test/compatibility.sh $(SUITES)

.PHONY: lint
lint: $(GOLANGCI) ## formatting, go vet, golangci-lint
	@unformatted=$$(gofmt -l $$(git -c safe.directory='*' ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt -w these files:"; echo "$$unformatted"; exit 1; fi
	@if test/tools.sh shellcheck; then shellcheck .ci/run install.sh release/*.sh test/*.sh test/cluster/*.sh internal/interpreter/install/*.sh; \
	else echo "lint: scripts were not looked at"; [[ ",$$GLOVEBOX_REQUIRE," != *,shellcheck,* ]]; fi
	$(GO) vet ./...
	GOFLAGS="$(GOFLAGS) -buildvcs=false" GOMEMLIMIT=3GiB $(GOLANGCI) run

# Compiled once, in its own module graph, and kept: it is not a dependency.
$(GOLANGCI):
	@mkdir -p $(@D)
	GOBIN=$(abspath .cache/bin) GOFLAGS="$(GOFLAGS) -buildvcs=false" $(GO) install -ldflags=-s \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv .cache/bin/golangci-lint $@

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf bin dist .cache internal/guestbin/glovebox-guest test/node/node_modules test/frameworks/node_modules test/clients/npm/node_modules test/browser/npm/node_modules

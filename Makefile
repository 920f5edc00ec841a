# make demo: see cache-aware routing beat round robin, nothing to configure.
# make test: everything that CI runs. The rest are parts of it, and make bench.

GO       ?= go
FUZZTIME ?= 3s
BIN      := $(CURDIR)/.cache/bin
# Modules of their own, so that what they need never reaches an importer.
NESTED    = $(patsubst %/go.mod,%,$(shell git ls-files '*/go.mod'))
# What users build: no tools.
SHIPPED   = . $(filter-out tools,$(NESTED))
# Whose tests subscribe to KV events, and are run once more with libzmq's reader.
LIBZMQ    = ./kvindex/zmqsub ./config
# Each is vetted, and the first one's unit tests are run.
SYSTEMS   = linux/386 linux/arm linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
# The older of the two supported releases of Go.
OLDER     = go1.25.14
# One more than there are processors: the soak mostly waits.
JOBS     ?= $(shell expr 1 + $$(nproc 2>/dev/null || echo 2))

.PHONY: demo test steps quick check lint lint-all systems older tools-test fetch check-builds race race-nested soak-race norace fuzz \
  bench pictures peers live clients share gateways metrics soak tools deps licenses release deploy hosts

demo:
	CGO_ENABLED=0 $(GO) -C cmd/warmroute run . demo

# The steps of it, JOBS at a time, each with the time it took. The soak comes first: it takes two minutes, whatever
# the machine.
test: deps tools
	@tools/step.sh "make test" $(MAKE) --no-print-directory -j$(JOBS) -O steps

steps: soak-race race race-nested lint norace fuzz systems older tools-test fetch check-builds

# Format, vet and the unit tests without the race detector. Go's cache of test results leaves out what did not change,
# and nested modules are looked at if they differ from the branch main.
quick:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	@tools/step.sh "vet" $(GO) vet ./...
	@tools/step.sh "unit tests" env CGO_ENABLED=0 $(GO) test ./...
	@set -e; for m in $(NESTED); do \
	  if { git diff --name-only main -- $$m; git ls-files -o --exclude-standard -- $$m; } 2>/dev/null | grep -q .; then \
	    tools/step.sh "vet $$m" $(GO) -C $$m vet ./...; \
	    tools/step.sh "unit tests $$m" env WARMROUTE_SOAK=0 CGO_ENABLED=0 $(GO) -C $$m test $$(test $$m != tools || echo -short) ./...; \
	  fi; done

# What the race detector and libzmq's binding need. Nothing else is installed.
deps:
	@{ command -v gcc && pkg-config --exists libzmq; } >/dev/null 2>&1 || { \
	  command -v apt-get >/dev/null || { echo "make test needs gcc, pkg-config and libzmq with its headers; please install them" >&2; exit 1; }; \
	  echo "installing gcc, pkg-config and libzmq3-dev"; \
	  { apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev pkg-config libzmq3-dev; } >/dev/null || \
	  { echo "make test needs gcc, pkg-config and libzmq3-dev, and apt-get could not install them; are you root, and online?" >&2; exit 1; }; }

tools:
	@$(GO) -C tools build -o $(BIN)/ honnef.co/go/tools/cmd/staticcheck golang.org/x/vuln/cmd/govulncheck \
	  golang.org/x/exp/cmd/apidiff ./apicheck ./licenses ./release ./style ./vulncheck

# What needs no long run: the static checks, other systems and the older Go, and what users fetch and build.
check: deps tools
	@$(MAKE) --no-print-directory -j$(JOBS) -O lint systems older tools-test fetch check-builds

lint: deps tools
	@tools/step.sh lint $(MAKE) --no-print-directory lint-all

lint-all:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags libzmq ./...
	$(GO) -C cmd/warmroute vet -tags libzmq ./...
	$(BIN)/staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) mod verify
	@set -e; for m in $(NESTED); do echo "check $$m"; cd $(CURDIR)/$$m; \
	  $(GO) vet ./...; $(BIN)/staticcheck ./...; $(GO) mod tidy -diff; done
	$(BIN)/licenses $(SHIPPED)
	$(BIN)/apicheck -apidiff $(BIN)/apidiff -accepted tools/apicheck/accepted . $(filter contrib/%,$(NESTED))
	$(BIN)/vulncheck -govulncheck $(BIN)/govulncheck $(SHIPPED)
	$(BIN)/style $$(git ls-files -- '*.go' '*.md')
	@tools/subjects.sh

# Every module compiles, its tests too, for each of these systems; Caddy, which is large, for two of them. The unit
# tests run where an int has 32 bits.
systems:
	@set -e; for p in $(SYSTEMS); do for m in . $(filter-out tools,$(NESTED)); do \
	  test $$m != examples/caddy || case $$p in darwin/arm64|windows/amd64) ;; *) continue ;; esac; \
	  CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) -C $$m vet ./... || { echo "$$m does not compile for $$p"; exit 1; }; done; \
	  echo "$$p compiles"; done
	@tools/step.sh "unit tests with 32 bits" env CGO_ENABLED=0 GOARCH=386 $(GO) test -short -timeout 15m $$($(GO) list ./... | grep -v -e /docs$$ -e /internal/layout$$)

# The older of the two supported releases of Go. Caddy needs the newer one, and tools is for this tree alone.
older:
	@set -e; for m in . $(filter-out tools examples/caddy,$(NESTED)); do GOTOOLCHAIN=$(OLDER) CGO_ENABLED=0 $(GO) -C $$m vet ./...; done
	@tools/step.sh "unit tests with $(OLDER)" env GOTOOLCHAIN=$(OLDER) CGO_ENABLED=0 $(GO) test -short -timeout 15m ./...

tools-test:
	@tools/step.sh "tests of tools" $(GO) -C tools test $$($(GO) -C tools list ./... | grep -v /release$$)

# Fetches every module and installs every program as users would, from a proxy made of the tree, without the network.
fetch:
	@tools/step.sh "fetch each module" $(GO) -C tools test -count=1 -timeout 20m ./release

# Every command of the README and the guide, from an empty build cache and without a C compiler: a minute or two.
check-builds:
	@tools/step.sh "build each command" env WARMROUTE_BUILDS=1 $(GO) test -count=1 -timeout 20m -run '^TestBuilds$$' ./docs

# Tags all modules at a version: make release VERSION=v0.1.0; see RELEASING.md.
release: tools
	$(BIN)/release -n $(VERSION)
	$(MAKE) test
	$(BIN)/release $(VERSION)

# Writes LICENSES.md, when a module was added or has gone.
licenses: tools
	$(BIN)/licenses -write $(SHIPPED)

race: deps
	@tools/step.sh race env CGO_ENABLED=1 $(GO) test -race -timeout 15m ./...
	@tools/step.sh "race with libzmq" env CGO_ENABLED=1 $(GO) test -race -tags libzmq -timeout 15m $(LIBZMQ)
	@tools/step.sh "race with libzmq cmd/warmroute" env CGO_ENABLED=1 $(GO) -C cmd/warmroute test -race -tags libzmq -timeout 15m \
	  -run 'Predictions|FourRoutes|ReplicasComeAndGo|Replay|ReadmeFile|Admin|Tokens' .

race-nested: deps
	@set -e; for m in $(filter-out .,$(SHIPPED)); do tools/step.sh "race $$m" env WARMROUTE_SOAK=0 CGO_ENABLED=1 \
	  $(GO) -C $$m test -race -timeout 15m ./...; done

# The soak's two-minute form.
soak-race: deps
	@tools/step.sh soak env CGO_ENABLED=1 $(GO) -C bench test -race -count=1 -timeout 15m -run '^TestSoak$$' ./soak

# What the race detector's build leaves out, and that nothing needs C.
norace:
	@tools/step.sh norace env CGO_ENABLED=0 $(GO) test -timeout 10m ./...
	@tools/step.sh "norace cmd/warmroute" env CGO_ENABLED=0 $(GO) -C cmd/warmroute test -timeout 10m ./...
	@tools/step.sh "norace bench" env WARMROUTE_SOAK=0 CGO_ENABLED=0 $(GO) -C bench test -timeout 10m ./...

fuzz:
	@GO=$(GO) tools/step.sh fuzz tools/fuzz.sh $(FUZZTIME)
	@set -e; for m in $(NESTED); do \
	  ! git grep -q '^func Fuzz' -- $$m || (cd $$m; GO=$(GO) $(CURDIR)/tools/step.sh "fuzz $$m" $(CURDIR)/tools/fuzz.sh $(FUZZTIME)); done

bench:
	$(GO) -C bench run ./budget

# The pictures of the README: a plot of simulated runs of a recorded trace, and the live page in a Chromium.
pictures:
	$(GO) -C bench run . -workload mooncake-conversation -rate 1.5 -seeds 5 -plot ../docs/images/ttft.svg \
	  -policies least_work,lmetric,dynamo,llmd_weighted,aibrix,vllm_router_threshold,sglang_threshold,round_robin
	BROWSERTEST_README=$(CURDIR)/docs/images $(GO) -C debugui/browsertest test -count=1 -run '^TestStory$$' .

# Published routers beside ours; see bench/peers. PEERS_PYTHON names a Python 3.11 that is not on PATH.
peers:
	$(GO) -C bench build -o $(BIN)/peers ./peers
	$(BIN)/peers $(PEERS)

# The buses of gateways that share, on real servers: nats-server as contrib/nats has it, and that of NATS_OLD if set;
# Redis and, if it is there, Valkey, alone, as a cluster and with sentinels. A minute for each.
REDIS_SERVER  ?= redis-server
REDIS_CLI     ?= redis-cli
VALKEY_SERVER ?= $(shell command -v valkey-server)
VALKEY_CLI    ?= $(if $(VALKEY_SERVER),$(dir $(VALKEY_SERVER))valkey-cli)
share:
	@command -v $(REDIS_SERVER) >/dev/null && command -v $(REDIS_CLI) >/dev/null || { \
	  echo "make share needs redis-server and redis-cli; REDIS_SERVER and REDIS_CLI name those of other places" >&2; exit 1; }
	@mkdir -p $(BIN)
	$(GO) -C contrib/nats build -o $(BIN)/nats-server github.com/nats-io/nats-server/v2
	$(GO) -C contrib/nats vet -tags real .
	$(GO) -C contrib/redis vet -tags real .
	NATS_SERVERS=$(BIN)/nats-server$(addprefix :,$(NATS_OLD)) $(GO) -C contrib/nats test -tags real -count=1 -run Real .
	REDIS_SERVER=$(REDIS_SERVER) REDIS_CLI=$(REDIS_CLI) $(GO) -C contrib/redis test -tags real -count=1 -run Real .
	@test -n "$(VALKEY_SERVER)" || echo "valkey-server is not on PATH, and VALKEY_SERVER names none: it is left out"
	$(if $(VALKEY_SERVER),REDIS_SERVER=$(VALKEY_SERVER) REDIS_CLI=$(VALKEY_CLI) $(GO) -C contrib/redis test -tags real -count=1 -run Real .)

# The pages, the alert rules and the dashboard by the tools of others: promtool and a Prometheus that scrapes, evaluates
# and answers, and Grafana's schema as its foundation SDK has it. Debian's package prometheus has the first two.
metrics:
	@command -v promtool >/dev/null && command -v prometheus >/dev/null || { \
	  echo "make metrics needs prometheus and promtool (Debian: apt-get install prometheus)" >&2; exit 1; }
	$(GO) -C tools run ./dashboard ../contrib/prometheus/dashboard.json
	$(GO) -C contrib/prometheus vet -tags promtool .
	$(GO) -C contrib/prometheus test -tags promtool -count=1 -v -run 'Promtool|RealPrometheus' .
	$(GO) -C cmd/warmroute test -tags promtool -count=1 -v -run Promtool .

# Gateways that share: processes on real buses, measured and broken; see bench/gateways.
gateways:
	CGO_ENABLED=0 $(GO) -C bench build -o $(BIN)/gateways ./gateways
	$(BIN)/gateways $(GATEWAYS)

# Two real engines on this machine's processor: what the gateway predicts of their
# caches, also with speculation, and each strategy's time to first token; see bench/live. Not part of test: it says first what it needs.
# LIVE_PYTHON names a Python 3.11 to 3.14 other than python3.
live:
	CGO_ENABLED=0 $(GO) -C bench build -o $(BIN)/live ./live
	$(BIN)/live $(LIVE)

# Real clients (SDKs of Python, Node and Go, curl, a browser) before the gateway; see bench/clients. It installs them
# into .cache, and says which it cannot run.
clients:
	$(GO) -C bench build -o $(BIN)/clients ./clients
	$(BIN)/clients $(CLIENTS)

# The gateway for half an hour at full rate while everything goes wrong; see
# bench/soak. Its two-minute form is among the tests.
soak:
	CGO_ENABLED=0 $(GO) -C bench run ./soak $(SOAK)

# The files of deploy/ by the types and the tools of their kinds. docker build needs a daemon and is not among them.
deploy:
	$(GO) -C tools run ./deploy ../deploy
	@command -v systemd-analyze >/dev/null || { echo "make deploy needs systemd-analyze (Debian: apt-get install systemd)" >&2; exit 1; }
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO) -C cmd/warmroute build -o $(BIN)/warmroute .
	sed 's#/usr/local/bin/warmroute#$(BIN)/warmroute#' deploy/warmroute.service > $(BIN)/warmroute.service
	systemd-analyze verify $(BIN)/warmroute.service

# Each host example with its real program (Envoy, Caddy, a gRPC client, Echo), and the figures of docs/hosts.md.
# HOSTS names some of them. Traefik has none: docs/hosts.md has the reason.
hosts:
	@GO=$(GO) tools/hosts.sh $(HOSTS)

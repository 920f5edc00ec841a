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
LIBZMQ    = ./kvindex/zmqsub ./config ./examples/gateway

.PHONY: demo test check bench peers live soak race fuzz norace check-builds tools deps licenses release

demo:
	CGO_ENABLED=0 $(GO) run ./examples/gateway -demo

test: check check-builds race norace fuzz

# What the race detector and libzmq's binding need. Nothing else is installed.
deps:
	@{ command -v gcc && pkg-config --exists libzmq; } >/dev/null 2>&1 || { \
	  command -v apt-get >/dev/null || { echo "make test needs gcc, pkg-config and libzmq with its headers; please install them" >&2; exit 1; }; \
	  echo "installing gcc, pkg-config and libzmq3-dev"; \
	  { apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev pkg-config libzmq3-dev; } >/dev/null || \
	  { echo "make test needs gcc, pkg-config and libzmq3-dev, and apt-get could not install them; are you root, and online?" >&2; exit 1; }; }

tools:
	@$(GO) -C tools build -o $(BIN)/ honnef.co/go/tools/cmd/staticcheck golang.org/x/vuln/cmd/govulncheck \
	  golang.org/x/exp/cmd/apidiff ./apicheck ./licenses ./release ./vulncheck

check: deps tools
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags libzmq ./...
	$(BIN)/staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) mod verify
	@set -e; for m in $(NESTED); do echo "check $$m"; cd $(CURDIR)/$$m; \
	  $(GO) vet ./...; $(BIN)/staticcheck ./...; $(GO) mod tidy -diff; done
	$(BIN)/licenses $(SHIPPED)
	$(BIN)/apicheck -apidiff $(BIN)/apidiff -accepted tools/apicheck/accepted . $(filter contrib/%,$(NESTED))
	$(BIN)/vulncheck -govulncheck $(BIN)/govulncheck $(SHIPPED)

# Every command of the README and the guide, from an empty build cache and without a C compiler: a minute or two.
check-builds:
	WARMROUTE_BUILDS=1 $(GO) test -count=1 -timeout 20m -run '^TestBuilds$$' ./docs

# Tags all modules at a version: make release VERSION=v0.1.0; see RELEASING.md.
release: tools
	$(BIN)/release -n $(VERSION)
	$(MAKE) test
	$(BIN)/release $(VERSION)

# Writes LICENSES.md, when a module was added or has gone.
licenses: tools
	$(BIN)/licenses -write $(SHIPPED)

race: deps
	CGO_ENABLED=1 $(GO) test -race -timeout 15m ./...
	CGO_ENABLED=1 $(GO) test -race -tags libzmq -timeout 15m $(LIBZMQ)
	@set -e; for m in $(filter-out .,$(SHIPPED)); do echo "test $$m"; CGO_ENABLED=1 $(GO) -C $$m test -race -timeout 15m ./...; done
	$(GO) -C tools test ./...

# What the race detector's build leaves out, and that nothing needs C.
norace:
	WARMROUTE_SOAK=0 CGO_ENABLED=0 $(GO) test -timeout 10m ./...

fuzz:
	@GO=$(GO) tools/fuzz.sh $(FUZZTIME)
	@set -e; for m in $(NESTED); do \
	  ! git grep -q '^func Fuzz' -- $$m || (cd $$m; GO=$(GO) $(CURDIR)/tools/fuzz.sh $(FUZZTIME)); done

bench:
	$(GO) -C bench run ./budget

# Published routers beside ours; see bench/peers. PEERS_PYTHON names a Python 3.11 that is not on PATH.
peers:
	$(GO) -C bench build -o $(BIN)/peers ./peers
	$(BIN)/peers $(PEERS)

# Two real engines on this machine's processor, and what the gateway predicts of
# their caches; see bench/live. Not part of test: it says first what it needs.
# LIVE_PYTHON names a Python 3.11 to 3.14 other than python3.
live:
	CGO_ENABLED=0 $(GO) -C bench build -o $(BIN)/live ./live
	$(BIN)/live $(LIVE)

# The gateway for half an hour at full rate while everything goes wrong; see
# bench/soak. Its two-minute form is among the tests.
soak:
	CGO_ENABLED=0 $(GO) -C bench run ./soak $(SOAK)

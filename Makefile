# Two commands do everything on a fresh machine with Go and git:
#   make demo   builds kern and shows it at work, without an API key
#   make test   installs what the tests need, and runs them all

GO      ?= go
BIN     := bin/kern
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: build demo test check race soak clients live bench fuzz licences sbom cross man clean

build: $(BIN)

$(BIN): FORCE
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/kern

FORCE:

demo: build
	@$(BIN) demo

test: build
	@tools/needs.sh test
	$(GO) vet ./...
	@GO='$(GO)' tools/test.sh ./...

# check is what a change must pass: test, and what takes longer.
check: test cross
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'not formatted'; exit 1; }
	$(GO) run $(STATICCHECK) ./...
	@tools/vuln.sh $(GO) run $(GOVULNCHECK) ./...
	$(MAKE) race

race:
	@tools/needs.sh race
	$(GO) test -race -timeout 40m ./...

# soak runs the long forms of the property, crash and pool tests.
soak:
	KERN_SOAK=1 $(GO) test -timeout 8h ./...

# clients runs a loop of every framework of docs/frameworks.md, and installs what is
# not there. RUN=codex takes the rows with that name, UPDATE=1 rewrites them.
clients:
	KERN_FRAMEWORKS=1 $(GO) test ./test/clients -count 1 -v -timeout 3h -run 'TestFrameworks$$/($(RUN))' $(if $(UPDATE),-update)

# live asks the real providers whose keys are in .env, for at most $$0.05.
live:
	@if [ -f .env ]; then set -a; . ./.env; set +a; fi; KERN_LIVE=1 $(GO) test ./test/clients -count 1 -v -run TestLive

bench: build
	@tools/bench.sh

fuzz:
	@tools/fuzz.sh $(or $(TIME),30s)

# licences writes the text of kern version --licences, from the module cache.
licences:
	@mkdir -p bin
	$(GO) run ./tools/licences >bin/licences.txt
	mv bin/licences.txt internal/manual/licences.txt

# sbom lists what is in the binary, as CycloneDX JSON.
sbom:
	@mkdir -p bin
	$(GO) run ./tools/licences -sbom >bin/kern.cdx.json

# cross compiles for the systems that cannot be tested here.
cross:
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/kern
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/kern
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/kern

# man writes the manual pages: make man MANDIR=~/.local/share/man/man1
MANDIR ?= bin/man1
man: build
	@$(BIN) man $(MANDIR)

clean:
	rm -rf bin .tools

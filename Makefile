# The comment after ## is what `make help` prints.

SHELL   := /bin/bash
MODULES := . adapters apps bench
# Patterns for tools that take folders: every module of go.work.
ALL     := ./... ./adapters/... ./apps/... ./bench/...

.DEFAULT_GOAL := help
.PHONY: help build servers test test-long lint vet fmt fmt-check tidy-check fuzz bench rules run clean

help: ## Print this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

build: ## Build every module, and the program into bin/onlyonce
	go build work
	@mkdir -p bin
	@if ls apps/onlyonce/*.go >/dev/null 2>&1; then go build -o bin/onlyonce ./apps/onlyonce; fi

servers: ## Install the servers of the tests where they are missing (root or sudo), fetch stripe-mock and dynalite
	@tools/servers.sh
	@cd adapters/stripeproc/testdata/stripemock && GOWORK=off GOFLAGS= go mod download
	@cd adapters/dynamostore/testdata/dynalite && { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --ignore-scripts --no-audit --no-fund --silent; }

test: servers ## Run the tests of every module with the race detector; prints times and budgets
	@ONLYONCE_TEST_REQUIRE=1 tools/test.sh

test-long: servers ## The same for much longer (ONLYONCE_SOAK, 10m), then every fuzz test
	@ONLYONCE_TEST_REQUIRE=1 ONLYONCE_SOAK=$${ONLYONCE_SOAK:-10m} TEST_TIMEOUT=4h tools/test.sh
	@FUZZTIME=$${FUZZTIME:-2m} tools/fuzz.sh

lint: bin/.tools ## Run the linters of .golangci.yaml
	bin/golangci-lint run $(ALL)

vet: ## Run go vet on every module
	go vet work

fmt: bin/.tools ## Format every Go file
	bin/golangci-lint fmt $(ALL)

fmt-check: bin/.tools ## List the Go files that are not formatted; fails if there are any
	@files=$$(bin/gofumpt -l $(MODULES)) && if [ -n "$$files" ]; then \
		echo "not formatted, run make fmt:"; echo "$$files"; exit 1; fi

tidy-check: ## Check go.mod and go.sum of every module
	@tools/tidy.sh

fuzz: ## Run every fuzz test for a while (FUZZTIME, 20s)
	@tools/fuzz.sh

bench: ## Run every benchmark
	go test -run '^$$' -bench . -benchmem work

rules: ## Print the rules of the contract that no test names
	@go run ./internal/lint/cmd/rules

run: ## Run the reference service
	go run ./apps/onlyonce serve

clean: ## Remove what was built
	rm -rf bin

# golangci-lint and gofumpt, built from the versions that tools/go.mod pins.
bin/.tools: tools/go.mod tools/go.sum
	@mkdir -p bin
	cd tools && GOWORK=off go build -buildvcs=false -o ../bin/ tool
	@touch $@

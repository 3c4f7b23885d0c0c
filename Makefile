# Names for the commands in CONTRIBUTING.md. Nothing needs make.

FUZZTIME ?= 30s
COUNT ?= 10

.PHONY: test race lint fuzz bench ci

test:
	go test ./...

race:
	go test -race ./...

lint:
	@unformatted=$$(gofmt -l .) && if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi
	go vet ./...
	GOWORK=off go tool -modfile=tools/go.mod staticcheck ./...

fuzz:
	@set -e; packages=$$(go list ./...); for package in $$packages; do \
		listed=$$(go test -list '^Fuzz' "$$package"); \
		for target in $$(echo "$$listed" | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package"; \
		done; \
	done

bench:
	go test -run '^$$' -bench . -count $(COUNT) ./...

ci:
	.ci/run

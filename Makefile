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
	go test -run '^$$' -fuzz FuzzOptions -fuzztime $(FUZZTIME) .
	go test -run '^$$' -fuzz FuzzParseCommand -fuzztime $(FUZZTIME) ./examples/gameserver
	go test -run '^$$' -fuzz FuzzParseCron -fuzztime $(FUZZTIME) ./cronsched
	go test -run '^$$' -fuzz FuzzScheduleText -fuzztime $(FUZZTIME) ./cronsched
	go test -run '^$$' -fuzz FuzzNext -fuzztime $(FUZZTIME) ./cronsched

bench:
	go test -run '^$$' -bench . -count $(COUNT) ./...

ci:
	.ci/run

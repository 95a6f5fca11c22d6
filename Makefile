# The few commands that matter; CONTRIBUTING.md says more.

SHELL := /bin/bash
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.PHONY: help setup build test oracles guest mutants corpora coverage demo bench papers traces doc msrv package crates clean

help: ## this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what building and testing need, or say what is missing
	@scripts/setup.sh

build: ## the release binary, target/release/forebay
	cargo build --release -p forebay

test: ## everything a change has to pass; STEPS="fmt clippy" for single steps
	@scripts/test.sh $(STEPS)

oracles: ## compare answers with naive programs on large random cases (minutes); ARGS="plan --seed 7" for one
	cargo build --workspace --bin forebay && tests/oracles/run --large $(ARGS)

guest: ## a virtual machine on exports, while the server is killed: 3 minutes; needs Debian packages
	@scripts/guest.sh

mutants: ## small mistakes put into a copy, each of which must be found: hours; ARGS="--only NAME"
	@tests/mutants/run $(ARGS)

corpora: ## write the inputs from which fuzzers start, fuzz/corpus, again
	cargo run -p forebay-fuzz

coverage: ## which lines the tests run, into target/coverage: builds everything again; ARGS="-p forebay-nbd" for one crate
	@scripts/coverage.sh $(ARGS)

demo: ## the main job on a real application, ends with a report; TRACE=file for a trace of yours
	@scripts/demo.sh

bench: ## the measurements, on this machine; BENCHES="hits plan" for some, SKIP="hits" for the others
	@SKIP="$(SKIP)" scripts/bench.sh $(BENCHES)

papers: ## every study in studies/ in full, into target/papers: minutes; STUDIES="policies" for some
	@STUDIES="$(STUDIES)" ARGS="$(ARGS)" scripts/papers.sh

traces: ## long traces of real applications, with content hashes, in traces/; LOADS="mail build" for some
	@scripts/record-traces.sh $(LOADS)

doc: ## the API documentation, its links checked
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

msrv: ## check the build with the oldest Rust that is supported; rustup installs it
	@scripts/msrv.sh

package: ## a Debian package and a wheel of the release binary, in target/package
	cargo build --release -p forebay && scripts/package.sh

crates: ## check that every crate of a release builds from what `cargo package` puts into it
	cargo package --workspace --exclude forebay-adversary --exclude forebay-fuzz \
		--exclude forebay-tidy --exclude forebay-ramserver

clean: ## remove what was built
	cargo clean

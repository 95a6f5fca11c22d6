# The main commands; CONTRIBUTING.md describes them.

SHELL := /bin/bash
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.PHONY: help setup build test oracles guest mutants corpora coverage demo bench figures papers traces doc msrv package crates clean

help: ## print this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what the build and the tests need (as root on Debian), or list what is missing
	@scripts/setup.sh

build: ## build the release binary, target/release/forebay
	cargo build --release -p forebay

test: ## run everything that a change must pass; STEPS="fmt clippy" for only these steps
	@scripts/test.sh $(STEPS)

oracles: ## compare results with those of naive programs on large random inputs: minutes; ARGS="plan --seed 7" for one
	cargo build --workspace --bin forebay && tests/oracles/run --large $(ARGS)

guest: ## kill the server while a virtual machine uses its exports: 3 minutes; needs Debian packages
	@scripts/guest.sh

mutants: ## put small bugs into a copy of the code, and check that the tests find each: hours; ARGS="--only NAME" for one
	@tests/mutants/run $(ARGS)

corpora: ## regenerate fuzz/corpus, the seed inputs of the fuzzers
	cargo run -p forebay-fuzz

coverage: ## report which lines of Rust code the tests cover, in target/coverage; rebuilds everything; ARGS="-p forebay-nbd" for one crate
	@scripts/coverage.sh $(ARGS)

demo: ## measure, plan and replay a real application, and write a report; TRACE=file for your own trace
	@scripts/demo.sh

bench: ## run the benchmarks on this machine; BENCHES="hits plan" for only these, SKIP="hits" for all but this one
	@SKIP="$(SKIP)" scripts/bench.sh $(BENCHES)

figures: ## put simulated and computed tables into the docs, where they change; ONLY="simulation rates" for some, ARGS=--check
	@[ -n "$(FOREBAY)" ] || $(MAKE) --no-print-directory build
	@bench/figures.py $(ARGS) $(ONLY)

papers: ## run every study in studies/ in full, into target/papers: minutes; STUDIES="policies" for some
	@STUDIES="$(STUDIES)" ARGS="$(ARGS)" scripts/papers.sh

traces: ## record long traces of real applications, with content hashes, in traces/; LOADS="mail build" for some
	@scripts/record-traces.sh $(LOADS)

doc: ## build the API documentation and check its links
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

msrv: ## check that Forebay builds with the oldest supported Rust, which rustup installs
	@scripts/msrv.sh

package: ## build a Debian package and a wheel of the release binary, in target/package
	cargo build --release -p forebay && scripts/package.sh

crates: ## check that every released crate builds from the files that `cargo package` includes
	@# Cargo would take what it built of the same versions before for these.
	rm -rf target/crates
	CARGO_TARGET_DIR=target/crates cargo package --workspace --exclude forebay-adversary --exclude forebay-fuzz \
		--exclude forebay-tidy --exclude forebay-ramserver

clean: ## delete all build output
	cargo clean

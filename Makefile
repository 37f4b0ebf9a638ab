# What a contributor needs, and nothing else. `make help` lists it.
.PHONY: help check test unit e2e bench proof tools

help: ## this list
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

check: ## formatting, lints, documentation, plain English, licences and the dependencies between crates
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy --workspace --lib --bins --examples --no-default-features --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked
	cargo run --quiet --locked -p tributary-plain-english
	cargo deny --locked check bans licenses sources
	cargo machete

# All of these select the whole workspace, also where one crate is meant: another selection means other features of shared
# dependencies, and building those once more. The program that the end-to-end tests start is built with the server's
# tests, which start it themselves: by itself it would have other features again.
test: tools ## unit, property and end-to-end tests: everything that CI runs
	e2e/all-tests.sh

unit: ## all tests that need no Go: unit, property, the router over simulated members, the model
	cargo test --workspace --exclude tributary-e2e --locked

e2e: tools ## real kube-apiservers and real clients; E2E=filter runs a part
	cargo test --workspace --no-run --locked
	cargo test --workspace --test e2e --locked -- $(E2E)

tools: ## builds the real servers and clients once, outside the checkout
	e2e/tools/build.sh servers
	e2e/tools/build.sh clients
	e2e/tools/build.sh specs
	e2e/tools/build.sh helm
	e2e/tools/build.sh k9s
	e2e/tools/build.sh observability
	e2e/tools/build.sh issuer
	e2e/tools/build.sh definitions
	e2e/tools/build.sh python

bench: tools ## criterion, then the load program against a bare kube-apiserver and Tributary
	cargo bench -p tributary-bench --locked
	cargo build --profile dist -p tributary-server --locked
	cargo run --profile dist -p tributary-bench --locked

proof: tools ## what takes longer than CI should, its results in PROOF.md; PROOF='model oracle' runs parts
	e2e/proof.sh $(PROOF)

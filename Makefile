# Headway's commands. `make demo` shows it at work, `make test` proves it.
.PHONY: demo test check fmt bench evidence soak build release web python clean-cache requirements sqlx openapi

demo: ## a living cluster with three real training jobs, from a bare machine
	@scripts/demo.sh

test: ## everything continuous integration runs
	@scripts/test.sh

check: ## the fast loop: format, types and lints
	scripts/check-worker.sh
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

fmt:
	cargo fmt --all

build: web
	cargo build --locked --workspace

release: web ## optimised, without LTO
	cargo build --locked --release -p headway-cli

web:
	@scripts/build-web.sh

python: ## the trainer's virtual environment
	@scripts/install-python.sh

clean-cache: ## remove what the scripts keep outside the repository (docs/operations.md, Disk)
	@scripts/clean-cache.sh

requirements: ## pin Python packages again after a change of a requirements.in (UPGRADE=--upgrade: the newest)
	@scripts/refresh-requirements.sh $(UPGRADE)

sqlx: ## refresh .sqlx after a change of SQL
	@scripts/prepare-sqlx.sh

openapi: ## refresh api/openapi.json and the web client after a change of the REST API
	UPDATE_OPENAPI=1 cargo test --locked -p headway-scheduler --quiet openapi
	cd web && npm run --silent generate

bench: ## benchmarks with their committed results under docs/measurements
	@scripts/bench.sh

evidence: ## policies side by side on drawn workloads, with the report under docs/evidence (SEEDS=1..3)
	@scripts/evidence.sh

soak: ## the long versions of the crash and simulation tests
	@scripts/soak.sh

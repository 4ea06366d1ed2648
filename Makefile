# Every target does its own set-up; what is installed already is left alone.
PYTHON = .venv/bin/python
PYTEST = $(PYTHON) -m pytest tests
TYPED = chatsite conversations inference quotas deploy manage.py
SOURCES = $(TYPED) tests benchmarks

.PHONY: run test test-pages test-modules test-long check bench bench-crowd bench-scheduler bench-reserve bench-flood simulate screenshots fmt clean lock app dev engine

run: app ## Install what is missing and run the whole site on this machine; PORT, HOST, CHATSITE_MODELS change it
	@exec $(PYTHON) manage.py up --follow-parent

test: dev engine ## Everything but what takes minutes each; the browser's and the quotas' tests beside the others, each with servers of its own
ifdef ARGS
	$(PYTEST) -m "not long" $(ARGS)
else
	@$(MAKE) --no-print-directory -j2 -Otarget test-pages test-modules
endif

test-pages:
	$(PYTEST)/acceptance -m "not long"
	$(PYTEST)/quotas -m "not long"

test-modules:
	$(PYTEST) --ignore=tests/acceptance --ignore=tests/quotas -m "not long"

test-long: dev engine ## Fault matrices and soak tests
	$(PYTEST) -m long $(ARGS)

check: dev ## Style, types, import rules, templates
	$(PYTHON) -m ruff check $(SOURCES)
	$(PYTHON) -m ruff format --check $(SOURCES)
	$(PYTHON) -m mypy $(TYPED)
	.venv/bin/lint-imports
	$(PYTHON) -m djlint --check --lint templates

bench: dev ## What a token and a request cost; ARGS go to the benchmark
	$(PYTHON) -m benchmarks.streaming $(ARGS)

bench-crowd: dev ## A thousand streams at once: gaps between tokens, memory
	$(PYTHON) -m benchmarks.crowd $(ARGS)

bench-scheduler: dev ## Cycles that one Redis core does, and the time of each operation; ARGS=--beside=COMMIT compares
	$(PYTHON) -m benchmarks.scheduling $(ARGS)

bench-reserve: dev ## What a reservation and its settlement cost in Redis, under load
	$(PYTHON) -m benchmarks.reserving $(ARGS)

bench-flood: dev engine ## A paying user beside a flood of free requests; ARGS=--real on the real vLLM
	$(PYTHON) -m benchmarks.floods $(ARGS)

simulate: dev ## The scheduling rules in simulated time, beside others' rules; ARGS=--quick takes a minute, --only=NAME some
	$(PYTHON) -m benchmarks.simulator $(ARGS)

screenshots: dev engine ## Pictures of every page and state, in var/screenshots; ARGS=--only=NAME takes some
	$(PYTHON) -m tests.acceptance.screenshots $(ARGS)

fmt: dev
	$(PYTHON) -m ruff format $(SOURCES)
	$(PYTHON) -m ruff check --fix $(SOURCES)
	$(PYTHON) -m djlint --reformat templates

lock: dev ## Write deploy/locks and package-lock.json anew; UPGRADE=1 takes the newest versions
	npm install --package-lock-only
	$(PYTHON) deploy/lock.py .venv/bin/uv

clean: ## Remove what was installed or cached in this checkout; the site's data in var/ stays
	rm -rf .venv node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf var/engine var/models var/node var/static var/test-cluster
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

app:
	@python=$$(deploy/find-python) && exec $$python deploy/bootstrap.py app

dev:
	@python=$$(deploy/find-python) && exec $$python deploy/bootstrap.py dev

engine:
	@exec $(PYTHON) -m chatsite.operations.engine_setup

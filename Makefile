# Two commands do everything on a machine with Python 3.11 or newer: `make serve` and `make test`.
PYTHON ?= python3
# A pip index with CPU wheels of torch, for where the default one would bring CUDA; see README.md.
TORCH_INDEX ?=
# HTTP port of the gateway on loopback; gRPC takes the next one; 0 takes two free ones.
PORT ?= 8000

VENV := .venv
BIN := $(VENV)/bin
SOURCES := services tests bench deploy

.PHONY: serve test test-full deploy-test check protos docs venv clean

serve: venv
	@exec $(BIN)/tandem serve --port $(PORT)

test: venv
	@$(BIN)/tandem model prepare
	$(BIN)/pytest -m "not full"

test-full: venv
	@$(BIN)/tandem model prepare
	$(BIN)/pytest

# What it needs, and its variables, are in deploy/README.md.
deploy-test: venv
	TORCH_INDEX=$(TORCH_INDEX) $(BIN)/python deploy/test/deploy_test.py

check: venv
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint protos
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(call stubs,"$$fresh") \
	  && diff -r --exclude=__pycache__ protos/gen "$$fresh" || { echo 'Stubs are not up to date: run `make protos`.'; exit 1; }

protos: venv
	rm -rf protos/gen/tandem
	$(call stubs,protos/gen)

docs: venv
	$(BIN)/python -m services.config.document > docs/configuration.md

# Writes Python stubs of every contract into folder $(1).
stubs = $(BIN)/python -m grpc_tools.protoc --proto_path=protos \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=$(1) --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) \
	  protos/tandem/v1/*.proto \
	  && touch $(1)/tandem/__init__.py $(1)/tandem/v1/__init__.py

venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Tandem needs Python 3.11 or newer: make PYTHON=/path/to/python3 ...'; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo '$(PYTHON) cannot make virtual environments; on Debian and Ubuntu, install python3-venv.'; exit 1; }
	@echo 'Installing into $(VENV); the first time takes some minutes.'
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' \
	  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	@# A reference that tests compare with. Its own dependencies are other versions of what is installed already.
	@$(BIN)/python -m pip install --quiet --no-deps dflash==0.1.0
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

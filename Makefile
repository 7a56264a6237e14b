# Two commands do everything: `make serve` and `make test`.
PYTHON ?= python3
# A pip index that serves CPU wheels of torch, where the default one would bring CUDA; see README.
TORCH_INDEX ?=
PORT ?= 8000
VENV := .venv
BIN := $(VENV)/bin
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: venv protos clean
venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(INDEX) --constraint constraints.txt --editable '.[dev]'
	touch $@

protos: venv
	rm -rf protos/gen/tandem
	$(BIN)/python -m grpc_tools.protoc --proto_path=protos \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=protos/gen --grpc_python_out=protos/gen --mypy_out=protos/gen --mypy_grpc_out=protos/gen \
	  protos/tandem/v1/*.proto
	touch protos/gen/tandem/__init__.py protos/gen/tandem/v1/__init__.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

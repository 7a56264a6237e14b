"""Names for what decides a row's bits: the machine's arithmetic, and the whole of it."""

import hashlib
import json
import os
import platform
from pathlib import Path

import torch

# Variables that make the same machine compute otherwise.
VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "MKL_CBWR")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def machine() -> str:
    """The processor, its instructions and its caches: kernels are chosen and cut by them."""
    facts = {
        "kind": "cpu",
        "processor": _processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "instructions": [
            name
            for name in ("vnni", "avx512_bf16", "amx_tile", "amx_fp16")
            if getattr(torch.cpu, f"_is_{name}_supported", bool)()
        ],
        "caches": [path.read_text().strip() for path in sorted(CACHES.glob("index*/size"))],
        "precision": torch.get_float32_matmul_precision(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    return json.dumps(facts, sort_keys=True)


def digest(*parts: object) -> str:
    """A name of all parts together, as hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.split(":", 1) for line in lines if ":" in line)
    facts = {name.strip(): value.strip() for name, value in named}
    return " ".join(facts.get(name, "") for name in ("vendor_id", "cpu family", "model", "model name")).strip()

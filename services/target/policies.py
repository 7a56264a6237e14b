"""The policies by the name of their setting."""

from services.target.policy.controller import Controller
from services.target.policy.gated import GatePolicy
from services.target.policy.rules import PolicyRules
from services.target.steering import Policy


def policy(name: str, rules: PolicyRules) -> Policy:
    """`controller` or `gate`."""
    return Controller(rules) if name == "controller" else GatePolicy(rules)

"""Where chat templates run: they come with the model, so they are somebody else's program.

They see what transformers shows them and change nothing outside; how long they run and how much they make is bounded.
Every loop and macro looks at the clock, and whatever can make a value much larger is measured first."""

import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from services.text import growth

SECONDS = 5.0


class Refused(jinja2.TemplateError):
    """The template's own `raise_exception`."""


@dataclass(frozen=True, slots=True)
class Clock:
    """One request's time: `now` as the template sees it, and how many seconds of computing each rendering may take."""

    now: datetime
    seconds: float = SECONDS


_running: ContextVar[tuple[Clock, float]] = ContextVar("running")


class Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "%", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
        self.filters["tojson"] = growth.tojson
        self.filters = {name: growth.measured(name, function) for name, function in self.filters.items()}
        self.globals |= {"raise_exception": refuse, "strftime_now": strftime_now}
        self.globals |= {"dict": make_dict, "namespace": PublicNamespace}

    def render(self, template: jinja2.Template, values: Mapping[str, Any], clock: Clock) -> str:
        # Time this thread has computed: a busy machine must not make a template fail.
        token = _running.set((clock, time.thread_time() + clock.seconds))
        try:
            return self.concat(template.generate(values))
        finally:
            _running.reset(token)

    def tick(self) -> str:
        clock, end = _running.get()
        if time.thread_time() > end:
            raise SecurityError(f"it ran for more than {clock.seconds:g} s")
        return ""

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """How compiled templates put together what a macro, a block or the whole of them wrote."""
        return growth.concat(pieces)

    def joined(self, *values: object) -> str:
        """`a ~ b`"""
        return growth.concat(map(str, values))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        growth.check_operator(operator, left, right)
        return growth.sized(super().call_binop(context, operator, left, right))

    def sized(self, value: object) -> object:
        """`[a, b]`"""
        return growth.sized(value)

    def call(self, context: Context, function: Any, /, *args: object, **kwargs: object) -> object:  # noqa: ANN401
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps `str.format`
        owner = getattr(method, "__self__", None)
        growth.check_call(getattr(method, "__name__", ""), owner, *args, *kwargs.values())
        return growth.sized(super().call(context, function, *args, **kwargs))

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        # `translate` takes a table, whose growth nothing shows
        return not (isinstance(obj, str) and attr == "translate") and super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = Watched().visit(super()._parse(source, name, filename))
        return tree


class Watched(NodeTransformer):
    """Puts the clock into every loop and macro, and new texts and lists where they are measured."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._timed(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._timed(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("joined", node.nodes)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._measured(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._measured(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self._measured(node) if node.ctx == "load" else node

    def _measured(self, node: nodes.List | nodes.Dict | nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _call("sized", [node]) if any(node.find_all((nodes.Name, nodes.Call))) else node

    def _timed(self, node: nodes.For | nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick", [])))
        return node


def _call(name: str, arguments: list[nodes.Expr]) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None)


class Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here its body is all that matters."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class PublicNamespace(Namespace):
    """A namespace that keeps no private names, which could reach into Python."""

    def __init__(*args: Any, **kwargs: object) -> None:  # noqa: ANN401
        self, *values = args  # so that a template may keep something under the name `self`
        named = dict(*values, **kwargs)
        for name in named:
            _check_public(name)
        Namespace.__init__(self, named)

    def __setitem__(self, name: str, value: object) -> None:
        _check_public(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        """Not what it holds: namespaces may hold each other, as lists may not."""
        return "<Namespace>"


def _check_public(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"a namespace cannot keep the private name {name!r}")


def make_dict(*args: Any, **kwargs: object) -> dict[Any, Any]:  # noqa: ANN401
    return dict(*args, **kwargs)


def refuse(message: object) -> None:
    raise Refused(str(message))


def strftime_now(form: str) -> str:
    return _running.get()[0].now.strftime(form)

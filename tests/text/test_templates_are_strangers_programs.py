"""Where chat templates are found, what they may see, and that none of them can hang, fill or leave its sandbox."""

import json

import pytest
from transformers import AutoTokenizer

from services.errors import BadCheckpoint, InvalidRequest
from services.text.files import TokenizerFiles
from services.text.template import ChatTemplate
from services.text.tokenizer import Tokenizer

USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def tokenizer(kinds):
    return Tokenizer(TokenizerFiles({"tokenizer.json": kinds["byte_level"]}))


@pytest.fixture
def show(tokenizer):
    """What a template makes of messages, as text."""

    def render(source, messages=USER, *, seconds=5.0, tokens=None, **kwargs):
        template = ChatTemplate({"default": source}, tokens or {}, seconds=seconds)
        return tokenizer.decode(template.encode(tokenizer, messages, **kwargs), skip_special=False)

    return render


@pytest.fixture
def folder(tmp_path, kinds):
    (tmp_path / "tokenizer.json").write_bytes(kinds["byte_level"])
    return tmp_path


def write(folder, name, value):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))


def test_a_model_without_a_template_has_none(folder):
    assert ChatTemplate.of(TokenizerFiles.read(folder)) is None
    several = [{"name": "a", "template": "x"}, {"name": "b", "template": "y"}]
    write(folder, "tokenizer_config.json", {"chat_template": several})
    assert ChatTemplate.of(TokenizerFiles.read(folder)) is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config.json": {"chat_template": "in config"}}, "in config"),
        ({"chat_template.jinja": "a file"}, "a file"),
        ({"chat_template.json": {"chat_template": "a processor's"}}, "a processor's"),
        ({"chat_template.jinja": "a file", "tokenizer_config.json": {"chat_template": "in config"}}, "a file"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]
                }
            },
            "yes",
        ),
        ({"tokenizer_config.json": {"chat_template": [{"name": "only", "template": "one"}]}}, "one"),
        ({"chat_template.jinja": "default", "additional_chat_templates/rag.jinja": "rag"}, "default"),
    ],
)
def test_a_template_is_found_wherever_it_may_be(folder, tokenizer, files, expected):
    for name, value in files.items():
        write(folder, name, value)
    template = ChatTemplate.of(TokenizerFiles.read(folder))
    assert tokenizer.decode(template.encode(tokenizer, USER)) == expected


def test_tools_choose_the_template_made_for_them_as_the_oracle_does(folder, tokenizer):
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }} tools"}]
    write(folder, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": named})
    template, oracle = ChatTemplate.of(TokenizerFiles.read(folder)), AutoTokenizer.from_pretrained(folder)
    for tools in (None, [], [{"type": "function"}]):
        expected = oracle.apply_chat_template(USER, tools=tools, tokenize=False)
        assert tokenizer.decode(template.encode(tokenizer, USER, tools=tools)) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7, "neither a text nor a list"),
        ([{"name": "default"}], "neither a text nor a list"),
        ("{% for %}", "cannot be compiled"),
        ("{% include 'x' %}{% nonsense %}", "cannot be compiled"),
    ],
)
def test_a_template_that_cannot_be_used_is_a_bad_checkpoint(folder, value, message):
    write(folder, "tokenizer_config.json", {"chat_template": value})
    with pytest.raises(BadCheckpoint, match=message):
        ChatTemplate.of(TokenizerFiles.read(folder))


@pytest.mark.parametrize("form", [lambda text: text, lambda text: {"__type": "AddedToken", "content": text}])
@pytest.mark.parametrize("eos", ["<|im_end|>", None])
def test_special_tokens_as_texts_objects_or_null_give_the_oracle_s_prompt(folder, form, eos):
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token is defined }}",
        "bos_token": form("<|im_start|>"),
        "eos_token": eos and form(eos),
        "pad_token": None,
    }
    write(folder, "tokenizer_config.json", config)
    files = TokenizerFiles.read(folder)
    expected = AutoTokenizer.from_pretrained(folder).apply_chat_template(USER)["input_ids"]
    tokenizer = Tokenizer(files)
    assert ChatTemplate.of(files).encode(tokenizer, USER) == expected
    assert tokenizer.bos_id == expected[0]


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
        "{% generation %}{{ messages[0].content }}{% set x = 1 %}{% endgeneration %}{{ x }}",
        "  {% if true %}\n  a\n  {% endif %}\n",
        "{{ messages | tojson }}{{ {'a': '<é>', 'b': [1, none, true]} | tojson(indent=1, separators=(',', ':')) }}",
        "{% macro f(x) %}({{ x ~ 1 ~ none }}){% endmacro %}{{ f('a') }}{% set y %}{{ f(2) }}{% endset %}{{ y }}",
        "{% call(x) dict() %}{% endcall %}{{ dict(a=1) }}",
        "{% set ns = namespace(n=0, self=1) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
        "{{ messages[0].nothing }}{{ nothing }}{{ messages[0].content is defined }}{{ messages[0].name is defined }}",
        "{{ messages[0].reasoning_content }}{{ messages[1].thinking }}{{ '%s-%d' % ('a', 2) ~ '{:>4}'.format(1) }}",
        "{{ 'a,b'.split(',') | join('; ') | upper | replace('A', 'c') | center(9) }}{{ 2 ** 10 * 3 }}{{ [1] * 3 }}",
        "{{ tools is none }}{{ documents is none }}{{ enable_thinking }}{{ strftime_now('%Y') | length }}",
    ],
)
def test_templates_see_and_write_what_they_do_in_the_oracle(folder, source):
    messages = [
        {"role": "user", "content": "hi", "name": None, "reasoning": "so"},
        {"role": "assistant", "content": "yes", "thinking": "", "reasoning_content": "hm"},
        {"role": "user", "content": "<b>"},
    ]
    write(folder, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": source})
    files = TokenizerFiles.read(folder)
    oracle = AutoTokenizer.from_pretrained(folder)
    try:
        expected = oracle.apply_chat_template(messages, enable_thinking=False)["input_ids"]
    except Exception:
        with pytest.raises(InvalidRequest):
            ChatTemplate.of(files).encode(
                Tokenizer(files), messages, add_generation_prompt=False, enable_thinking=False
            )
        return
    template = ChatTemplate.of(files)
    assert template.encode(Tokenizer(files), messages, add_generation_prompt=False, enable_thinking=False) == expected


def test_a_refusal_is_the_template_s_own_words(show):
    with pytest.raises(InvalidRequest, match="refuses: roles must alternate") as refusal:
        show("{{ raise_exception('roles must alternate') }}")
    assert refusal.value.field == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ nothing.at.all }}",
        "{{ messages[0].content + none }}",
        "{{ 1 // 0 }}",
        "{% include 'file' %}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({}) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ namespace({'__class__': 1}) }}",
        "{{ raise_exception.__globals__ }}{{ ''.format.__self__.x }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_template_that_fails_is_the_client_s_error_and_stays_inside(show, source):
    with pytest.raises(InvalidRequest, match="chat template") as refusal:
        show(source)
    assert refusal.value.field == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set r = range(9999) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
        "{% for x in [[1]] recursive %}{{ loop([x, x]) }}{% endfor %}",
    ],
)
def test_a_template_that_does_not_end_is_ended(show, source):
    with pytest.raises(InvalidRequest, match="chat template fails"):
        show(source, seconds=0.2)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{{ '0123456789' * 1000 }}{% endfor %}",
        "{{ range(10 ** 9) | list }}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ 'a' | center(10 ** 10) }}",
        "{{ 'a'.ljust(10 ** 10) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10 ** 10, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10 ** 10) }}",
        "{{ [1] | tojson(indent=10 ** 10) }}",
    ],
)
def test_a_template_that_writes_without_end_is_ended(show, source):
    with pytest.raises(InvalidRequest, match="chat template fails"):
        show(source)


@pytest.mark.parametrize(
    "step",
    [
        "ns.s + ns.s",
        "ns.s ~ ns.s",
        "[ns.s, ns.s]",
        "{'a': ns.s, 'b': ns.s}",
        "(ns.s, ns.s)",
        "dict(a=ns.s, b=ns.s)",
        "[ns.s] * 2",
        "[ns.s] + [ns.s]",
        "[ns.s, ns.s] | join",
        "''.join([ns.s, ns.s])",
        "ns.s.replace('a', ns.s)",
        "ns.s | replace('a', ns.s)",
        "'%s%s' % (ns.s, ns.s)",
        "'{}{}'.format(ns.s, ns.s)",
        "f(ns.s)",
        "ns.s | batch(1) | list + [ns.s]",
    ],
)
def test_nothing_doubles_without_end(show, step):
    source = "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(s='aa') %}"
    source += "{% for i in range(99) %}{% set ns.s = " + step + " %}{% endfor %}{{ ns.s }}"
    with pytest.raises(InvalidRequest, match="chat template fails"):
        show(source)


def test_a_namespace_does_not_show_what_it_holds(show):
    """Others, perhaps, and those others."""
    assert show("{% set ns = namespace(a=namespace()) %}{{ ns }}") == "<Namespace>"


def test_indentation_of_deep_values_is_bounded(show):
    deep = [1] * 1000
    for _ in range(300):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="chat template fails"):
        show("{{ tools | tojson(indent=200) }}", tools=deep)
    assert len(show("{{ tools | tojson(indent=4) }}", tools=deep)) > 1_000_000


def test_a_large_prompt_of_nothing_but_edges_is_a_prompt_like_any_other(show):
    """Megabytes that would take minutes if any step looked at them more than a few times."""
    source = "<|im_start|>{{ messages[0].content }}<|im_end|>"
    for text in ("<|" * 200_000, "<|im_start|>" * 50_000, "<" * 300_000 + "\U00100000" * 9, "</think" * 50_000):
        assert show(source, [{"content": text}]) == f"<|im_start|>{text}<|im_end|>"


def test_both_looks_at_the_messages_see_one_time(show):
    shown = show("{{ strftime_now('%f') }} {{ messages[0].content }}", [{"content": "<|im_end|>"}])
    assert shown.endswith(" <|im_end|>")

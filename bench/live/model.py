"""Writes a tiny Llama: its configuration, a tokenizer trained on the text that
comes in on standard input, and a chat template. The weights are random. The engine
makes them when it loads the model, so small that a token hardly depends on those
before the last; with WEIGHTS, true, larger ones are written.
Usage: python model.py FOLDER HIDDEN LAYERS WEIGHTS < TEXT"""

import json
import os
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 2048
SPECIAL = ["<|end|>", "<|turn|>", "<|stop|>", "<|pad|>"]
END, STOP, PAD = 0, 2, 3
LENGTH = 8192

# Each message ends before the next begins, so a conversation's tokens are the
# first ones of the same conversation with more messages.
TEMPLATE = (
    "{% for m in messages %}<|turn|>{{ m['role'] }}\n{{ m['content'] }}<|stop|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)

HIDDEN, LAYERS, WEIGHTS = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "true"

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HIDDEN // 32,
    "num_key_value_heads": HIDDEN // 64,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": LENGTH,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": END,
    "eos_token_id": STOP,
    "pad_token_id": PAD,
}

TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": None,
    "eos_token": SPECIAL[STOP],
    "pad_token": SPECIAL[PAD],
    "unk_token": None,
    "model_max_length": LENGTH,
    "clean_up_tokenization_spaces": False,
    "chat_template": TEMPLATE,
}


def write(folder, name, value):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=1)


def weights():
    import torch

    g = torch.Generator().manual_seed(1)

    def matrix(rows, columns, gain=1.0):
        return torch.randn(rows, columns, generator=g) * (gain / columns**0.5)

    heads, kv = MODEL["num_attention_heads"] * MODEL["head_dim"], MODEL["num_key_value_heads"] * MODEL["head_dim"]
    inner, ones = MODEL["intermediate_size"], torch.ones(HIDDEN)
    w = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=g),
        "lm_head.weight": matrix(VOCABULARY, HIDDEN),
        "model.norm.weight": ones.clone(),
    }
    for i in range(LAYERS):
        layer = "model.layers.%d." % i
        w[layer + "input_layernorm.weight"] = ones.clone()
        w[layer + "post_attention_layernorm.weight"] = ones.clone()
        w[layer + "self_attn.q_proj.weight"] = matrix(heads, HIDDEN, 1.5)
        w[layer + "self_attn.k_proj.weight"] = matrix(kv, HIDDEN, 1.5)
        w[layer + "self_attn.v_proj.weight"] = matrix(kv, HIDDEN, 4)
        w[layer + "self_attn.o_proj.weight"] = matrix(HIDDEN, heads, 4)
        w[layer + "mlp.gate_proj.weight"] = matrix(inner, HIDDEN)
        w[layer + "mlp.up_proj.weight"] = matrix(inner, HIDDEN)
        w[layer + "mlp.down_proj.weight"] = matrix(HIDDEN, inner)
    return w


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sys.stdin, trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        sys.exit("the text is too short for %d tokens: %d" % (VOCABULARY, tokenizer.get_vocab_size()))
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    write(folder, "tokenizer_config.json", TOKENIZER)
    write(folder, "config.json", MODEL)
    write(folder, "generation_config.json", {"eos_token_id": STOP, "pad_token_id": PAD})
    if WEIGHTS:
        from safetensors.torch import save_file

        save_file(weights(), os.path.join(folder, "model.safetensors"))


main()

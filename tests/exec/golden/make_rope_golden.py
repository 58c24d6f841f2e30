#!/usr/bin/env python3
"""Rotary frequencies of Hugging Face transformers for rope_scaling sections as published models have them.

Prints one line a case: the part of config.json | head dimension | attention factor | frequencies of all pairs.
Usage: make_rope_golden.py > rope.txt (needs torch and transformers; CPU)."""
import json
import torch
import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LLAMA31 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}
CASES = [  # head dimension, config
    (64, {"rope_theta": 10000.0, "max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}),
    (128, {"rope_theta": 500000.0, "max_position_embeddings": 131072, "rope_scaling": LLAMA31}),
    (64, {"rope_theta": 500000.0, "max_position_embeddings": 131072, "rope_scaling": dict(LLAMA31, factor=32.0)}),
    (128, {"rope_theta": 1000000.0, "max_position_embeddings": 131072,
           "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}),
    (64, {"rope_theta": 150000.0, "max_position_embeddings": 131072,
          "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                           "original_max_position_embeddings": 4096}}),
    (64, {"rope_theta": 10000.0, "max_position_embeddings": 163840,
          "rope_scaling": {"type": "yarn", "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                           "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096}}),
    (32, {"rope_theta": 10000.0, "max_position_embeddings": 16384,
          "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 0.9,
                           "original_max_position_embeddings": 8192}}),
    (64, {"rope_theta": 50000.0, "max_position_embeddings": 131072,
          "rope_scaling": {"type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0,
                           "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}}),
]

torch.set_default_dtype(torch.float64)
print(f"# by make_rope_golden.py, transformers {transformers.__version__}, torch {torch.__version__}")
for head_dim, config in CASES:
    scaling = config["rope_scaling"]
    kind = scaling.get("rope_type", scaling.get("type"))
    hf = LlamaConfig(head_dim=head_dim, hidden_size=4 * head_dim, num_attention_heads=4, **json.loads(json.dumps(config)))
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](hf, "cpu")
    print(json.dumps(config), head_dim, f"{factor:.9g}", " ".join(f"{float(f):.9g}" for f in frequencies), sep=" | ")

#!/usr/bin/env python3
"""Losses, gradients and updated weights of tiny models by PyTorch autograd in double precision.

The weights and the data follow planexec's rules (exec/params.c, exec/data.c), written again here from their
description; the arithmetic is PyTorch's own. Usage: make_golden.py > autograd.txt (needs torch, CPU is enough)."""
import json
import math
import os
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
MASK = (1 << 64) - 1
STEPS, BATCH, SEQ, SEED = 3, 8, 32, 1


def mixed(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def start(name, shape, std):
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = ((key ^ byte) * 0x100000001B3) & MASK
    key = mixed(key ^ mixed(SEED))
    n = math.prod(shape)
    std = float(torch.tensor(std, dtype=torch.float32))
    values = [((mixed((key + i) & MASK) >> 11) * 2.0**-53 * 2 - 1) * std * 1.7320508075688772 for i in range(n)]
    return torch.tensor(values).float().double().reshape(shape)


def token(number, position, vocab):
    noise = mixed((SEED * 0x51ED27F1 + mixed(number) + position) & MASK)
    rule = position * 7 + number % 5 * 3
    return (rule if noise % 4 else noise >> 8) % vocab


class Model:
    def __init__(self, config):
        self.c, self.p = config, {}
        self.gpt = config["model_type"] == "gpt2"
        self.h = config.get("hidden_size", config.get("n_embd"))
        self.layers = config.get("num_hidden_layers", config.get("n_layer"))
        self.heads = config.get("num_attention_heads", config.get("n_head"))
        self.kv = config.get("num_key_value_heads", self.heads)
        self.ffn = config.get("intermediate_size", 4 * self.h)
        self.d = self.h // self.heads
        self.experts = config.get("num_local_experts", 0)
        vocab = config["vocab_size"]
        self.add("embedding.weight", vocab, self.h)
        if self.gpt:
            self.add("positions.weight", config["n_positions"], self.h)
        for i in range(self.layers):
            pre = f"layers.{i}."
            self.norm(pre + "norm1")
            for part, out in (("q", self.heads), ("k", self.kv), ("v", self.kv)):
                self.linear(pre + part, out * self.d, self.h)
            self.linear(pre + "out", self.h, self.heads * self.d)
            self.norm(pre + "norm2")
            if self.experts:
                self.add(pre + "router.weight", self.experts, self.h)
            for e in range(max(self.experts, 1)):
                at = pre + (f"experts.{e}." if self.experts else "")
                if not self.gpt:
                    self.linear(at + "gate", self.ffn, self.h)
                self.linear(at + "up", self.ffn, self.h)
                self.linear(at + "down", self.h, self.ffn)
        self.norm("final_norm")
        if not self.gpt:
            self.add("head.weight", vocab, self.h)
        for value in self.p.values():
            value.requires_grad_(True)

    def add(self, name, *shape):
        self.p[name] = start(name, shape, 0.02)

    def norm(self, name):
        self.p[name + ".weight"] = torch.ones(self.h)
        if self.gpt:
            self.p[name + ".bias"] = torch.zeros(self.h)

    def linear(self, name, out, inner):
        self.add(name + ".weight", out, inner)
        if self.gpt:
            self.p[name + ".bias"] = torch.zeros(out)

    def apply_norm(self, name, x):
        if self.gpt:
            return F.layer_norm(x, (self.h,), self.p[name + ".weight"], self.p[name + ".bias"], 1e-5)
        return F.rms_norm(x, (self.h,), self.p[name + ".weight"], 1e-5)

    def apply(self, name, x):
        return F.linear(x, self.p[name + ".weight"], self.p.get(name + ".bias"))

    def rotate(self, x):  # [b, heads, s, d], halves
        s = x.shape[2]
        frequency = self.c["rope_theta"] ** (-torch.arange(0, self.d, 2) / self.d)
        angle = torch.arange(s)[:, None] * frequency[None, :]
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
        half = torch.cat((-x[..., self.d // 2:], x[..., : self.d // 2]), dim=-1)
        return x * cos + half * sin

    def attention(self, pre, x):
        b, s, _ = x.shape
        q, k, v = (self.apply(pre + n, x).view(b, s, -1, self.d).transpose(1, 2) for n in "qkv")
        if not self.gpt:
            q, k = self.rotate(q), self.rotate(k)
        k, v = (t.repeat_interleave(self.heads // self.kv, dim=1) for t in (k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.apply(pre + "out", o.transpose(1, 2).reshape(b, s, -1))

    def mlp(self, pre, x):
        if self.gpt:
            return self.apply(pre + "down", F.gelu(self.apply(pre + "up", x), approximate="tanh"))
        return self.apply(pre + "down", F.silu(self.apply(pre + "gate", x)) * self.apply(pre + "up", x))

    def moe(self, pre, x):
        p = F.linear(x, self.p[pre + "router.weight"]).softmax(-1)
        k = self.c["num_experts_per_tok"]
        weight, choice = p.topk(k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for e in range(self.experts):
            share = (weight * (choice == e)).sum(-1, keepdim=True)
            y = y + share * self.mlp(f"{pre}experts.{e}.", x)
        # balance per micro-batch of two sequences, as planexec's plan has it
        for i in range(0, x.shape[0], 2):
            f = F.one_hot(choice[i : i + 2], self.experts).double().sum(2).mean((0, 1))
            self.aux = self.aux + self.experts * (f * p[i : i + 2].mean((0, 1))).sum() * 2 / x.shape[0]
        return y

    def loss(self, words):
        x = F.embedding(words[:, :-1], self.p["embedding.weight"])
        if self.gpt:
            x = x + self.p["positions.weight"][: x.shape[1]]
        self.aux = torch.zeros(())
        for i in range(self.layers):
            pre = f"layers.{i}."
            x = x + self.attention(pre, self.apply_norm(pre + "norm1", x))
            n = self.apply_norm(pre + "norm2", x)
            x = x + (self.moe(pre, n) if self.experts else self.mlp(pre, n))
        head = self.p["embedding.weight" if self.gpt else "head.weight"]
        logits = F.linear(self.apply_norm("final_norm", x), head)
        return F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten()) + self.c.get("router_aux_loss_coef", 0) * self.aux


def probe(x):
    """Two numbers that a wrong element changes: the norm, and a product with a fixed pattern."""
    flat = x.flatten()
    pattern = torch.tensor([((i * 7919) % 1009) / 1009 - 0.5 for i in range(flat.numel())])
    return flat.norm().item(), (flat * pattern).sum().item()


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    print(f"# by make_golden.py, torch {torch.__version__}, float64; model | what | name | norm | product with the pattern")
    for name in ("llama-tiny", "gpt2-tiny", "mixtral-tiny"):
        model = Model(json.load(open(os.path.join(here, name + ".json"))))
        decay = [v for v in model.p.values() if v.dim() == 2]
        rest = [v for v in model.p.values() if v.dim() < 2]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
        for step in range(STEPS):
            numbers = [step * BATCH + b for b in range(BATCH)]
            words = torch.tensor([[token(n, i, model.c["vocab_size"]) for i in range(SEQ + 1)] for n in numbers])
            optimizer.zero_grad()
            loss = model.loss(words)
            loss.backward()
            norm = math.sqrt(sum((v.grad**2).sum().item() for v in model.p.values()))
            print(f"{name} | loss{step + 1} | - | {loss.item():.9f} | {norm:.9f}")
            if step == 0:
                for key, value in model.p.items():
                    print("%s | gradient | %s | %.9e | %.9e" % (name, key, *probe(value.grad)))
            for value in model.p.values():
                value.grad *= min(1.0, 1.0 / norm)
            optimizer.step()
        for key, value in model.p.items():
            print("%s | weight | %s | %.9e | %.9e" % (name, key, *probe(value.detach())))


main()

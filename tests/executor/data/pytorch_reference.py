"""What PyTorch computes for the models of tests/executor/tiny_models.hpp, in float64.

Usage: python3 pytorch_reference.py > pytorch_reference.txt (made with torch 2.15.0 on a CPU)

Lines: model, what, number. `block` and `block_gradient`: the first block's output and the gradient
of its input, as sums weighted with waves. `gradient`: norm of a parameter's gradient in the first
step. `loss` and `norm`: of ten steps of AdamW with clipping; its epsilon is large, for keys have
biases whose gradient is nothing but rounding. `value`: norm of a parameter after them.
"""

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)

HIDDEN, VOCAB, SEQUENCE, BATCH, BLOCKS = 24, 50, 12, 2, 2
HEADS, HEAD_DIM = 4, 6
BALANCE, EPSILON = 0.01, 1e-5


def wave(count, phase):
    return torch.sin((1.7 * torch.arange(count, dtype=torch.float64) + phase) ** 2)


Q_RANK, KV_RANK, ROPE_DIM = 10, 12, 4


class Decoder:
    """Parameters in the order of the executor's table, filled with waves."""

    def __init__(self, name):
        self.name = name
        self.gpt2 = name == "gpt2"
        self.latent = name == "deepseek"
        self.gate = name == "qwen2_moe"
        self.shared_width = {"qwen2_moe": 16, "deepseek": 8}.get(name, 0)
        self.qk_norm = {"qwen3": "head", "olmo2": "projection"}.get(name)
        self.before = name != "olmo2"
        self.behind = name in ("olmo2", "qwen2_moe")
        self.kv_heads = HEADS if self.gpt2 or self.latent else 2
        self.qk_dim = 8 if self.latent else HEAD_DIM
        self.parameters = {}
        qkv = (HEADS + 2 * self.kv_heads) * HEAD_DIM
        self.add("token_table", VOCAB, HIDDEN)
        if self.gpt2:
            self.add("position_table", SEQUENCE, HIDDEN)
        for i in range(BLOCKS):
            b = f"blocks.{i}."
            if self.before:
                self.add_norm(b + "attention_norm")
            if self.latent:
                self.add(b + "q_down.weight", Q_RANK, HIDDEN)
                self.add(b + "q_down_norm.scale", Q_RANK, middle=1.0)
                self.add(b + "q_up.weight", HEADS * self.qk_dim, Q_RANK)
                self.add(b + "kv_down.weight", KV_RANK + ROPE_DIM, HIDDEN)
                self.add(b + "kv_down_norm.scale", KV_RANK, middle=1.0)
                self.add(b + "kv_up.weight", HEADS * (self.qk_dim - ROPE_DIM + HEAD_DIM), KV_RANK)
            else:
                self.add_linear(b + "qkv", qkv, HIDDEN, bias=self.gpt2 or self.gate)
            if self.qk_norm:
                whole = self.qk_norm == "projection"
                self.add(b + "q_norm.scale", HEAD_DIM * (HEADS if whole else 1), middle=1.0)
                self.add(b + "k_norm.scale", HEAD_DIM * (self.kv_heads if whole else 1), middle=1.0)
            self.add_linear(b + "attention_out", HIDDEN, HEADS * HEAD_DIM)
            if self.behind:
                self.add_norm(b + "attention_end_norm")
            if self.before:
                self.add_norm(b + "ffn_norm")
            if self.routes(i):
                if self.shared_width:
                    self.add(b + "shared_up.weight", 2 * self.shared_width, HIDDEN)
                    self.add(b + "shared_down.weight", HIDDEN, self.shared_width)
                if self.gate:
                    self.add(b + "shared_gate.weight", 1, HIDDEN)
                self.add_linear(b + "router", 4, HIDDEN, bias=self.gate)
                self.add(b + "expert_up.weight", 4, 40, HIDDEN)
                self.add(b + "expert_down.weight", 4, HIDDEN, 20)
            elif self.gpt2:
                self.add_linear(b + "mlp_up", 96, HIDDEN)
                self.add_linear(b + "mlp_down", HIDDEN, 96)
            else:
                self.add_linear(b + "mlp_up", 80, HIDDEN)
                self.add_linear(b + "mlp_down", HIDDEN, 40)
            if self.behind:
                self.add_norm(b + "ffn_end_norm")
        self.add_norm("final_norm")
        if not self.gpt2:
            self.add("head.weight", VOCAB, HIDDEN)

    def routes(self, i):
        return self.name in ("mixtral", "qwen2_moe") or (self.latent and i > 0)

    def add(self, name, *shape, middle=0.0):
        count = 1
        for size in shape:
            count *= size
        values = middle + 0.2 * wave(count, len(self.parameters))
        self.parameters[name] = values.reshape(shape).requires_grad_()

    def add_norm(self, name):
        self.add(name + ".scale", HIDDEN, middle=1.0)
        if self.gpt2:
            self.add(name + ".shift", HIDDEN)

    def add_linear(self, name, rows, columns, bias=None):
        self.add(name + ".weight", rows, columns)
        if self.gpt2 if bias is None else bias:
            self.add(name + ".bias", rows)

    def norm(self, name, x):
        p = self.parameters
        if self.gpt2:
            return F.layer_norm(x, (HIDDEN,), p[name + ".scale"], p[name + ".shift"], EPSILON)
        return F.rms_norm(x, (HIDDEN,), p[name + ".scale"], EPSILON)

    def linear(self, name, x):
        return F.linear(x, self.parameters[name + ".weight"], self.parameters.get(name + ".bias"))

    def rms_norm(self, name, x):
        scale = self.parameters[name + ".scale"]
        return F.rms_norm(x, scale.shape, scale, EPSILON)

    @staticmethod
    def rotate(x):
        dim = x.shape[-1]
        half = dim // 2
        rates = 10000.0 ** (-2.0 * torch.arange(half) / dim)
        angles = torch.outer(torch.arange(SEQUENCE, dtype=torch.float64), rates)
        angles = torch.cat((angles, angles), dim=-1)
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * angles.cos() + turned * angles.sin()

    def latents(self, b, x):
        """Queries, keys and values of heads, from compressed vectors."""
        q = self.linear(b + "q_up", self.rms_norm(b + "q_down_norm", self.linear(b + "q_down", x)))
        low, turned = self.linear(b + "kv_down", x).split([KV_RANK, ROPE_DIM], dim=-1)
        both = self.linear(b + "kv_up", self.rms_norm(b + "kv_down_norm", low))
        q, both = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, both))
        plain = self.qk_dim - ROPE_DIM
        k, v = both.split([plain, HEAD_DIM], dim=-1)
        turned = self.rotate(turned)[:, None].expand(-1, HEADS, -1, -1)
        q = torch.cat((q[..., :plain], self.rotate(q[..., plain:])), dim=-1)
        return q, torch.cat((k, turned), dim=-1), v

    def heads(self, b, x):
        q, k, v = self.linear(b + "qkv", x).split(
            [HEADS * HEAD_DIM] + 2 * [self.kv_heads * HEAD_DIM], dim=-1)
        if self.qk_norm == "projection":
            q, k = self.rms_norm(b + "q_norm", q), self.rms_norm(b + "k_norm", k)
        q, k, v = (t.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for t in (q, k, v))
        if self.qk_norm == "head":
            q, k = self.rms_norm(b + "q_norm", q), self.rms_norm(b + "k_norm", k)
        if not self.gpt2:
            q, k = self.rotate(q), self.rotate(k)
        return q, k, v

    def attention(self, i, x):
        b = f"blocks.{i}."
        q, k, v = self.latents(b, x) if self.latent else self.heads(b, x)
        k, v = (t.repeat_interleave(HEADS // self.kv_heads, dim=1) for t in (k, v))
        distance = torch.arange(SEQUENCE)[:, None] - torch.arange(SEQUENCE)[None]
        seen = distance >= 0
        if self.name == "qwen3" and i % 2 == 0:
            seen = seen & (distance < 5)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.linear(b + "attention_out", out.transpose(1, 2).flatten(-2))

    def experts(self, b, x):
        p = self.parameters
        rows = x.reshape(-1, HIDDEN)
        probabilities = self.linear(b + "router", rows).softmax(dim=-1)
        weights, chosen = probabilities.topk(2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        share = F.one_hot(chosen, 4).double().sum(dim=(0, 1)) / chosen.numel()
        balance = BALANCE * 4 * (share * probabilities.mean(dim=0)).sum()
        out = torch.zeros_like(rows)
        for e in range(4):
            gate, up = F.linear(rows, p[b + "expert_up.weight"][e]).chunk(2, dim=-1)
            y = F.linear(F.silu(gate) * up, p[b + "expert_down.weight"][e])
            out = out + y * (weights * (chosen == e)).sum(dim=-1, keepdim=True)
        if self.shared_width:
            gate, up = self.linear(b + "shared_up", rows).chunk(2, dim=-1)
            y = self.linear(b + "shared_down", F.silu(gate) * up)
            if self.gate:
                y = y * torch.sigmoid(self.linear(b + "shared_gate", rows))
            out = out + y
        return out.reshape(x.shape), balance

    def network(self, i, x):
        b = f"blocks.{i}."
        if self.routes(i):
            return self.experts(b, x)
        y = self.linear(b + "mlp_up", x)
        if self.gpt2:
            y = F.gelu(y, approximate="tanh")
        else:
            gate, up = y.chunk(2, dim=-1)
            y = F.silu(gate) * up
        return self.linear(b + "mlp_down", y), 0.0

    def block(self, i, x):
        b = f"blocks.{i}."
        y = self.attention(i, self.norm(b + "attention_norm", x) if self.before else x)
        x = x + (self.norm(b + "attention_end_norm", y) if self.behind else y)
        y, balance = self.network(i, self.norm(b + "ffn_norm", x) if self.before else x)
        return x + (self.norm(b + "ffn_end_norm", y) if self.behind else y), balance

    def loss(self, tokens, targets):
        p = self.parameters
        x = p["token_table"][tokens]
        if self.gpt2:
            x = x + p["position_table"]
        balance = 0.0
        for i in range(BLOCKS):
            x, one = self.block(i, x)
            balance = balance + one
        head = p["token_table"] if self.gpt2 else p["head.weight"]
        logits = F.linear(self.norm("final_norm", x), head)
        cross_entropy = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return cross_entropy, cross_entropy + balance


def tokens_of(step):
    i = torch.arange(BATCH * SEQUENCE)
    tokens = (i * i + 7 * step) % VOCAB
    targets = (i * i + 2 * i + 7 * step + 1) % VOCAB
    return tokens.reshape(BATCH, SEQUENCE), targets.reshape(BATCH, SEQUENCE)


def report(model, what, value):
    print(model.name, what, repr(value.item()))


def main():
    for name in ("gpt2", "llama", "mixtral", "qwen3", "olmo2", "qwen2_moe", "deepseek"):
        model = Decoder(name)
        x = wave(BATCH * SEQUENCE * HIDDEN, 3.0).reshape(BATCH, SEQUENCE, HIDDEN).requires_grad_()
        weights = wave(x.numel(), 5.0).reshape(x.shape)
        out, _ = model.block(0, x)
        report(model, "block", (out * weights).sum())
        (gradient,) = torch.autograd.grad((out * weights).sum(), x)
        report(model, "block_gradient", (gradient * weights).sum())
        decays = [p for n, p in model.parameters.items() if p.dim() > 1 and n != "position_table"]
        others = [p for n, p in model.parameters.items() if p.dim() == 1 or n == "position_table"]
        optimizer = torch.optim.AdamW(
            [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            lr=1e-2, betas=(0.9, 0.95), eps=1e-5)
        for step in range(10):
            optimizer.zero_grad()
            cross_entropy, whole = model.loss(*tokens_of(step))
            whole.backward()
            if step == 0:
                for parameter_name, p in model.parameters.items():
                    report(model, "gradient." + parameter_name, p.grad.norm())
            norm = torch.nn.utils.clip_grad_norm_(list(model.parameters.values()), 1.0)
            optimizer.step()
            report(model, f"loss.{step}", cross_entropy)
            report(model, f"norm.{step}", norm)
        for parameter_name, p in model.parameters.items():
            report(model, "value." + parameter_name, p.norm())


if __name__ == "__main__":
    main()

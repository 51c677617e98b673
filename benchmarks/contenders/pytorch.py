"""PyTorch's `nn.Transformer`, eager or compiled.

Dropout is where the paper has it: `nn.Transformer` would drop attention weights and activations too, which costs time.
"""

import argparse
import json
import os
import time

import torch
import torch._dynamo.utils
from torch import nn

from benchmarks.processes import versions
from benchmarks.training_task import TrainingTask


class TorchTransformer(nn.Module):
    """The model and its loss, one embedding for both inputs and the output."""

    def __init__(self, vocab_size, max_length, num_layers, d_model, d_ff, num_heads, dropout):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.register_buffer("positions", sinusoids(max_length, d_model))
        self.dropout = nn.Dropout(dropout)
        self.transformer = nn.Transformer(
            d_model, num_heads, num_layers, num_layers, d_ff, dropout, batch_first=True
        )
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
                module.dropout = nn.Identity()

    def forward(self, source, target, labels):
        padding = source == 0
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            tgt_key_padding_mask=target == 0,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits = nn.functional.linear(hidden, self.embedding.weight)
        return nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=0.1
        )

    def embed(self, token_ids):
        embedded = self.embedding(token_ids) * self.embedding.embedding_dim**0.5
        return self.dropout(embedded + self.positions[: token_ids.shape[1]])


def sinusoids(length, width):
    """Section 3.5 of the paper: (length, width)."""
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def num_graphs():
    """How many graphs `torch.compile` has made so far."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    task = TrainingTask(options.task)
    facts = task.facts
    model = TorchTransformer(facts["vocab_size"], facts["max_length"], **facts["sizes"])
    # In one pass over the weights: the fastest that PyTorch has.
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    loss_of = torch.compile(model) if options.compile else model

    def step(batch):
        source, target, labels = (torch.from_numpy(rows).long() for rows in batch)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bfloat16"):
            loss = loss_of(source, target, labels)
        loss.backward()
        optimizer.step()

    for batch in task.warmup():
        step(batch)
    batches = task.batches
    graphs = num_graphs()
    begin = time.perf_counter()
    for batch in batches:
        step(batch)
    seconds = time.perf_counter() - begin
    report = task.report(
        seconds,
        versions("torch"),
        parameters=sum(weights.numel() for weights in model.parameters()),
        graphs={"warm-up": graphs, "epoch": num_graphs() - graphs},
    )
    print(json.dumps(report))


if __name__ == "__main__":
    main()

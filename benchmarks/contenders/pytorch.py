"""PyTorch's `nn.Transformer`, eager or compiled.

Dropout is applied where the paper applies it. `nn.Transformer` would also drop attention weights
and activations, which takes time.
"""

import json
import os
import time

import torch
from torch import nn

from benchmarks.processes import versions
from benchmarks.training_task import Batch, TrainingTask, make_parser


class TorchTransformer(nn.Module):
    """The model and its loss, with one embedding for source, target and output projection."""

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        num_layers: int,
        d_model: int,
        d_ff: int,
        num_heads: int,
        dropout: float,
    ) -> None:
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

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Returns the mean loss; the arguments are a batch of a TrainingTask."""
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

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Returns embeddings with positions: (rows, length, d_model)."""
        embedded = self.embedding(token_ids) * self.embedding.embedding_dim**0.5
        return self.dropout(embedded + self.positions[: token_ids.shape[1]])


def sinusoids(length: int, width: int) -> torch.Tensor:
    """Returns the positions of section 3.5 of the paper: (length, width)."""
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def main() -> None:
    """Measures the contender and prints its report."""
    parser = make_parser(__doc__)
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    task = TrainingTask(options.task)
    facts = task.facts
    model = TorchTransformer(facts["vocab_size"], facts["max_length"], **facts["sizes"])
    # PyTorch's fastest: it updates all weights in one pass.
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    compute_loss = torch.compile(model) if options.compile else model

    def step(batch: Batch) -> None:
        source, target, labels = (torch.from_numpy(rows).long() for rows in batch)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bfloat16"):
            loss = compute_loss(source, target, labels)
        loss.backward()
        optimizer.step()

    for batch in task.warmup_batches():
        step(batch)
    batches = task.batches
    begin = time.perf_counter()
    for batch in batches:
        step(batch)
    seconds = time.perf_counter() - begin
    print(json.dumps(task.make_report(seconds, versions("torch"))))


if __name__ == "__main__":
    main()

"""Hugging Face's MarianMT of the same size with its `generate`, from token ids to token ids, in eager mode.

It has random weights, which do not know when to end a translation. Each request therefore takes as many steps as the
longest translation of the trained model has tokens.
"""

import argparse
import json
import os
from collections.abc import Iterable

import torch
from transformers import MarianConfig, MarianMTModel

from benchmarks.decoding_task import BEAM_SIZE, DecodingTask, make_report, send_requests
from benchmarks.processes import versions

PAD, START, END = 0, 2, 3


def build_model(
    vocab_size: int,
    max_length: int,
    num_layers: tuple[int, int],
    d_model: int,
    d_ff: int,
    num_heads: int,
    dropout: float,
) -> MarianMTModel:
    """Builds the model with random weights.

    Args:
        vocab_size, max_length, d_model, d_ff, num_heads, dropout: see TransformerConfig.
        num_layers: the numbers of layers in the encoder and in the decoder.
    """
    encoder_layers, decoder_layers = num_layers
    config = MarianConfig(
        vocab_size=vocab_size,
        # One more for the start token, which is a position of the target.
        max_position_embeddings=max_length + 1,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        d_model=d_model,
        encoder_ffn_dim=d_ff,
        decoder_ffn_dim=d_ff,
        encoder_attention_heads=num_heads,
        decoder_attention_heads=num_heads,
        dropout=dropout,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        decoder_start_token_id=START,
        eos_token_id=END,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config).eval()


def pad(rows: Iterable[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Adds end tokens and padding.

    Args:
        rows: lists of token ids.

    Returns:
        Token ids (rows, length), and a mask that is true where there is no padding.
    """
    with_end = [torch.tensor([*row, END]) for row in rows]
    token_ids = torch.nn.utils.rnn.pad_sequence(with_end, batch_first=True, padding_value=PAD)
    return token_ids, token_ids != PAD


def main() -> None:
    """Measures the contender and prints its report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", metavar="TASK", help="the task's directory")
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    task = DecodingTask(options.task)
    facts = task.facts
    model = build_model(facts["vocab_size"], facts["max_length"], **facts["sizes"])

    @torch.inference_mode()
    def generate(request: tuple[list[list[int]], int]) -> int:
        rows, num_steps = request
        token_ids, mask = pad(row[: facts["max_length"] - 1] for row in rows)
        found = model.generate(
            token_ids,
            attention_mask=mask,
            num_beams=BEAM_SIZE,
            do_sample=False,
            use_cache=True,
            min_new_tokens=num_steps,
            max_new_tokens=num_steps,
        )
        return found.shape[1] - 1

    requests = list(zip(task.token_id_requests(), facts["num_steps"], strict=True))
    send_requests(generate, requests[::8])
    num_steps, seconds = send_requests(generate, requests)
    num_sentences = sum(len(rows) for rows, _ in requests)
    report = make_report(num_sentences, seconds, versions("torch", "transformers"), num_steps=num_steps)
    print(json.dumps(report))


if __name__ == "__main__":
    main()

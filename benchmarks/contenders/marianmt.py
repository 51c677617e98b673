"""Hugging Face's MarianMT of the same size and its `generate`, from token ids to token ids, eager.

Its weights are random, so that it would not know when to end. Each request is therefore searched for as many steps as
the longest translation of our search has tokens.
"""

import argparse
import json
import os

import torch
from transformers import MarianConfig, MarianMTModel

from benchmarks.decoding_task import BEAM_SIZE, DecodingTask, answer_all, report
from benchmarks.processes import versions

PAD, START, END = 0, 2, 3


def build_model(vocab_size, max_length, num_layers, d_model, d_ff, num_heads, dropout):
    config = MarianConfig(
        vocab_size=vocab_size,
        # One more for the start token, which counts as a position of the target.
        max_position_embeddings=max_length + 1,
        encoder_layers=num_layers,
        decoder_layers=num_layers,
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


def padded(rows):
    """Token ids with end tokens, and the mask of what is not padding."""
    rows = [torch.tensor([*row, END]) for row in rows]
    token_ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return token_ids, token_ids != PAD


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    task = DecodingTask(options.task)
    facts = task.facts
    model = build_model(facts["vocab_size"], facts["max_length"], **facts["sizes"])

    @torch.inference_mode()
    def generate(request):
        rows, steps = request
        token_ids, mask = padded(row[: facts["max_length"] - 1] for row in rows)
        found = model.generate(
            token_ids,
            attention_mask=mask,
            num_beams=BEAM_SIZE,
            do_sample=False,
            use_cache=True,
            min_new_tokens=steps,
            max_new_tokens=steps,
        )
        return found.shape[1] - 1

    requests = list(zip(task.id_requests(), facts["num_steps"]))
    answer_all(generate, requests[::8])
    num_steps, seconds = answer_all(generate, requests)
    sentences = sum(len(rows) for rows, _ in requests)
    print(json.dumps(report(sentences, seconds, versions("torch", "transformers"), num_steps=num_steps)))


if __name__ == "__main__":
    main()

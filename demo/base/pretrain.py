"""Trains the demo's base model from scratch: `python -m demo.base.pretrain --out DIR`, about 2.5 minutes on one core.

The result is committed (demo/base/tiny-words), because another build of torch makes another model of the same kind.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from demo.base import corpus
from demo.base.corpus import Document

log = logging.getLogger("pretrain")

QWEN_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""Qwen's pre-tokenisation: single digits, so that numbers are read digit by digit."""

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VOCABULARY, TOKENIZER_DOCUMENTS, CONTEXT = 512, 8_000, 256
BATCH, BUCKET_BATCHES = 16, 32
LEARNING_RATE, WARM_UP_STEPS, FINAL_RATE_SHARE, MAX_NORM = 2e-3, 100, 0.02, 1.0
INITIAL_STD = 0.06
"""With 0.02, or batches of 128, copying names and numbers never emerged in this few tokens."""

REPORT_EVERY = 250


@dataclass(frozen=True, slots=True)
class Row:
    """The token ids of a document and the loss weight of each."""

    ids: list[int]
    weights: list[float]


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer in the manner of Qwen3, with its chat template."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(SPECIAL_TOKENS), show_progress=False, initial_alphabet=alphabet),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """An untrained Qwen3 of 0.23 M parameters; head dimension 32 is the smallest that vLLM has CPU kernels for."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=INITIAL_STD,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def rows(tokenizer: PreTrainedTokenizerFast, documents: Sequence[Document]) -> list[Row]:
    """The documents as token ids with loss weights; spans are encoded one by one, so that weights end where spans do."""
    encoded = iter(tokenizer([span.text for document in documents for span in document.spans], add_special_tokens=False)["input_ids"])
    return [_row(document, [next(encoded) for _ in document.spans]) for document in documents]


def _row(document: Document, ids: list[list[int]]) -> Row:
    weights = [span.weight for span, piece in zip(document.spans, ids, strict=True) for _ in piece]
    return Row([token for piece in ids for token in piece], weights)


def batches(table: Sequence[Row], seed: int) -> list[list[Row]]:
    """Rows in batches of similar length, in seeded order: little is spent on padding."""
    rng = random.Random(seed)
    order = list(table)
    rng.shuffle(order)
    found = []
    for start in range(0, len(order), BATCH * BUCKET_BATCHES):
        bucket = sorted(order[start : start + BATCH * BUCKET_BATCHES], key=lambda row: len(row.ids))
        found += [bucket[at : at + BATCH] for at in range(0, len(bucket), BATCH)]
    rng.shuffle(found)
    return found


def padded(batch: Sequence[Row], pad: int) -> tuple[Tensor, Tensor]:
    """ids_BT and weights_BT, right-padded: with causal attention nothing before the padding sees it, so no mask is needed."""
    width = max(len(row.ids) for row in batch)
    ids = [row.ids + [pad] * (width - len(row.ids)) for row in batch]
    weights = [row.weights + [0.0] * (width - len(row.weights)) for row in batch]
    return torch.tensor(ids), torch.tensor(weights)


def loss_of(model: Qwen3ForCausalLM, ids_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Weighted mean cross-entropy of the next token."""
    logits = model(input_ids=ids_BT[:, :-1]).logits.float().flatten(0, 1)
    losses = torch.nn.functional.cross_entropy(logits, ids_BT[:, 1:].flatten(), reduction="none")
    weights = weights_BT[:, 1:].flatten()
    return (losses * weights).sum() / weights.sum()


def rate(step: int, steps: int) -> float:
    """The learning rate: linear warm-up, then a cosine to 2 %; by steps and not by the clock, so that runs repeat."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return LEARNING_RATE * min(1.0, (step + 1) / WARM_UP_STEPS) * (FINAL_RATE_SHARE + (1 - FINAL_RATE_SHARE) * cosine)


def train(model: Qwen3ForCausalLM, plan: Sequence[Sequence[Row]], pad: int) -> None:
    """One pass over the batches with AdamW."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    started, seen = time.monotonic(), 0
    for step, batch in enumerate(plan):
        ids_BT, weights_BT = padded(batch, pad)
        loss = loss_of(model, ids_BT, weights_BT)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        for group in optimiser.param_groups:
            group["lr"] = rate(step, len(plan))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        seen += ids_BT.numel()
        if step % REPORT_EVERY == 0 or step == len(plan) - 1:
            log.info("step %d of %d, loss %.3f, %.0f tokens/s", step + 1, len(plan), loss.item(), seen / (time.monotonic() - started))


def main() -> None:
    """Make corpus, tokenizer and model, and save them in bfloat16."""
    parser = argparse.ArgumentParser(description="Trains the demo's base model from scratch.")
    parser.add_argument("--out", type=Path, required=True, help="directory to write the model to")
    parser.add_argument("--documents", type=int, default=corpus.DOCUMENTS, help="size of the corpus; fewer make a worse model sooner")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    documents = list(corpus.documents(arguments.documents))
    tokenizer = train_tokenizer("".join(span.text for span in document.spans) for document in documents[:TOKENIZER_DOCUMENTS])
    model = new_model(tokenizer)
    log.info("%d documents, %d parameters", len(documents), model.num_parameters())
    train(model, batches(rows(tokenizer, documents), seed=0), int(tokenizer.pad_token_id))
    model.to(torch.bfloat16).save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)


if __name__ == "__main__":
    main()

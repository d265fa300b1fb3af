"""Writes a tiny language model for the real llama.cpp: a llama with two blocks, a vocabulary of bytes and random
weights. It says nonsense, but with real tokens, slots and cancellation, and it loads in 40 ms.

`python -m tests.support.tiny_model FILE [SEED]` writes one; the same seed writes the same bytes.
"""

import sys
from pathlib import Path
from typing import Final

import numpy as np
from gguf import GGUFWriter, TokenType

WIDTH: Final = 64
BLOCKS: Final = 2
HEADS: Final = 4
FEED_FORWARD: Final = 192
CONTEXT: Final = 4096
SPECIAL: Final = ("<unk>", "<s>", "</s>")


def write_tiny_model(path: Path, *, seed: int = 7, name: str = "tiny", context: int = CONTEXT) -> Path:
    """Returns `path`, for use as an expression. The folder must exist. The model never ends its answer by itself: it
    goes on until `context` is full, or to the length that was asked for."""
    writer = GGUFWriter(str(path), "llama")
    writer.add_name(name)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    _write_vocabulary(writer)
    _write_weights(writer, np.random.default_rng(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_vocabulary(writer: GGUFWriter) -> None:
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *([TokenType.BYTE] * 256)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_vocab_size(len(tokens))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _write_weights(writer: GGUFWriter, random: np.random.Generator) -> None:
    def draw(*shape: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
        return random.normal(0.0, 0.08, shape).astype(np.float32)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, draw(*shape))

    def add_leaving_first(name: str, *shape: int) -> None:
        """Adds to every number of the state but the first."""
        weights = draw(*shape)
        weights[0] = 0.0
        writer.add_tensor(name, weights)

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    vocabulary = len(SPECIAL) + 256
    # It goes on until its limit, in letters that a terminal shows: the first number of the state is equal for every
    # token, no block changes it, and it makes all other tokens, the end among them, too unlikely to be drawn.
    embedding = draw(vocabulary, WIDTH)
    embedding[:, 0] = 0.5
    writer.add_tensor("token_embd.weight", embedding)
    ones("output_norm.weight")
    output = draw(vocabulary, WIDTH)
    output[:, 0] = 0.0
    shown = [len(SPECIAL) + byte for byte in range(0x20, 0x7F)]
    others = [token for token in range(vocabulary) if token not in shown]
    output[others] = 0.0
    output[others, 0] = -30.0
    writer.add_tensor("output.weight", output)
    for block in range(BLOCKS):
        ones(f"blk.{block}.attn_norm.weight")
        ones(f"blk.{block}.ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v"):
            add(f"blk.{block}.{part}.weight", WIDTH, WIDTH)
        add_leaving_first(f"blk.{block}.attn_output.weight", WIDTH, WIDTH)
        add(f"blk.{block}.ffn_gate.weight", FEED_FORWARD, WIDTH)
        add(f"blk.{block}.ffn_up.weight", FEED_FORWARD, WIDTH)
        add_leaving_first(f"blk.{block}.ffn_down.weight", WIDTH, FEED_FORWARD)


if __name__ == "__main__":
    write_tiny_model(Path(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 7)

"""A transformer encoder; its tokens are a table's columns and words, an image's patches or the steps of a series.

Source: pre-norm blocks as in Xiong et al. 2020; tables as in Gorishniy et al. 2021 (FT-Transformer); images as in
Dosovitskiy et al. 2021 (ViT).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from models.errors import UsageError
from models.kinds.data_kind import PerDataKind
from models.nets.attention import AttentionBlocks, by_head, query_key_value
from models.nets.sizes import Sizes
from models.nets.splitting import Style
from models.ngrams.words import UNKNOWN_WORD


class EncoderBlock(nn.Module):
    """Attention and a feed-forward net, each with a pre-norm and a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.head_width = width // heads
        self.dropout = dropout
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = query_key_value(width)
        self.project = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (batch, token, width) from the same shape."""
        q, k, v = by_head(self.query_key_value(self.norm_attention(tokens)), self.head_width)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        tokens = tokens + self.project(mixed.transpose(1, 2).flatten(2))
        output: torch.Tensor = tokens + self.feed(self.norm_feed(tokens))
        return output


BLOCK_PLAN: dict[str, Style] = {
    "query_key_value": "column",
    "project": "row",
    "feed.0": "column",
    "feed.3": "row",
}


class WordTokens(nn.Module):
    """One token per word of the texts: its embedding plus that of its stem.

    In training a share of the words is unknown, and that share of the features is 0: texts are few, words are many.
    """

    def __init__(self, sizes: Sizes, width: int, dropout: float) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(n, width) for n in sizes.vocabularies)
        for weight in self.embeddings.parameters():
            nn.init.normal_(weight, std=0.1)
        self.dropout = dropout

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return (batch, word, width) from indices (batch, word, 2)."""
        if self.training and self.dropout:
            is_hidden = torch.rand(words.shape[:2], device=words.device) < self.dropout
            words = torch.where(is_hidden.unsqueeze(-1), words.clamp(max=UNKNOWN_WORD), words)
        tokens = torch.stack([embed(words[..., i]) for i, embed in enumerate(self.embeddings)]).sum(dim=0)
        return F.dropout(tokens, self.dropout, self.training)


class TableTokens(nn.Module):
    """One token per column, a number times a learnt vector or a category's embedding; then one per word of texts."""

    def __init__(self, sizes: Sizes, width: int, word_dropout: float) -> None:
        super().__init__()
        self.count = sizes.num_numeric + len(sizes.cardinalities) + sizes.num_words
        self.scale = nn.Parameter(torch.randn(sizes.num_numeric, width) * width**-0.5)
        self.embeddings = nn.ModuleList(nn.Embedding(n, width) for n in sizes.cardinalities)
        self.words = WordTokens(sizes, width, word_dropout) if sizes.num_words else None

    def forward(
        self, numeric: torch.Tensor, categorical: torch.Tensor, words: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return (batch, column + word, width)."""
        tokens = [numeric.unsqueeze(-1) * self.scale]
        tokens += [embed(categorical[:, i]).unsqueeze(1) for i, embed in enumerate(self.embeddings)]
        if self.words is not None:
            tokens.append(self.words(words))
        return torch.cat(tokens, dim=1)


class PatchTokens(nn.Module):
    """One token per square of `patch` x `patch` pixels."""

    def __init__(self, sizes: Sizes, width: int, patch: int) -> None:
        super().__init__()
        channels, height, breadth = sizes.image
        if height % patch or breadth % patch:
            raise UsageError(f"model.arguments.patch: got {patch}, expected a divisor of {height} and {breadth}")
        self.count = (height // patch) * (breadth // patch)
        self.cut = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return (batch, patch, width)."""
        patches: torch.Tensor = self.cut(image).flatten(2).transpose(1, 2)
        return patches


class StepTokens(nn.Module):
    """One token per time step."""

    def __init__(self, sizes: Sizes, width: int) -> None:
        super().__init__()
        self.count, features = sizes.window
        self.lift = nn.Linear(features, width)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """Return (batch, time, width)."""
        steps: torch.Tensor = self.lift(series)
        return steps


Tokens = TableTokens | PatchTokens | StepTokens
_TOKENS: PerDataKind[Callable[[Sizes, int, int, float], Tokens]] = {
    "table": lambda sizes, width, patch, word_dropout: TableTokens(sizes, width, word_dropout),
    "image": lambda sizes, width, patch, word_dropout: PatchTokens(sizes, width, patch),
    "series": lambda sizes, width, patch, word_dropout: StepTokens(sizes, width),
    "text": lambda sizes, width, patch, word_dropout: StepTokens(sizes, width),
}
"""Texts have the decoder instead (`models/nets/decoder.py`)."""


class Encoder(AttentionBlocks):
    """Adds learnt positions and a leading summary token, which the head reads after the last block."""

    def __init__(self, tokens: Tokens, blocks: list[EncoderBlock], width: int, num_outputs: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.summary = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, tokens.count, width) * 0.02)
        self.layers, self.block_plan = nn.ModuleList(blocks), BLOCK_PLAN
        self.heads = width // blocks[0].head_width if blocks else 1
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_outputs)
        nn.init.zeros_(self.head.weight)  # as ViT's reference does: the first steps then learn from all tokens alike

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_outputs) from the inputs of the net's kind."""
        output: torch.Tensor = self.head(self.features(**inputs))
        return output

    def features(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return (batch, width), the normalised summary token."""
        tokens = self.enter(**inputs)
        for block in self.layers:
            tokens = block(tokens)
        summary: torch.Tensor = self.norm(tokens[:, 0])
        return summary

    def enter(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return the summary token and the tokens, (batch, 1 + token, width)."""
        tokens = self.tokens(**inputs) + self.positions
        return torch.cat([self.summary.expand(tokens.shape[0], -1, -1), tokens], dim=1)

    def leave(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (batch, num_outputs) from the summary token."""
        output: torch.Tensor = self.head(self.norm(hidden[:, 0]))
        return output


def build(
    sizes: Sizes,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    dropout: float = 0.1,
    patch: int = 4,
    word_dropout: float = 0.25,
) -> nn.Module:
    """Build an encoder of `layers` blocks over tokens of `width`.

    Args:
        sizes: The sizes of the data.
        width: Features of a token.
        layers: Number of blocks.
        heads: Number of attention heads.
        dropout: Dropout in attention and feed-forward nets.
        patch: Side of an image's patches.
        word_dropout: Share of a text's words, and of the features of each, that is hidden in training.

    Raises:
        UsageError: `heads` does not divide `width`, `patch` does not divide the image, or `word_dropout` is no share.
    """
    if width % heads:
        raise UsageError(f"model.arguments.heads: got {heads}, expected a divisor of width {width}")
    if not 0 <= word_dropout < 1:
        raise UsageError(f"model.arguments.word_dropout: got {word_dropout}, expected 0 or more and below 1")
    tokens = _TOKENS[sizes.kind](sizes, width, patch, word_dropout)
    return Encoder(tokens, [EncoderBlock(width, heads, dropout) for _ in range(layers)], width, sizes.num_outputs)

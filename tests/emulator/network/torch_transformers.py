"""Transformers in PyTorch as people write them, for tests of ONNX files."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch, which exports the files of these tests, is not installed"
)
nn, functional = torch.nn, torch.nn.functional

WIDTH, HEADS, TOKENS, SYMBOLS = 12, 3, 8, 28
SIZE = WIDTH // HEADS

Triple = tuple[Any, Any, Any]


def split(x: Any) -> Triple:
    """All queries, then all keys, then all values."""
    q, k, v = (
        part.view(*x.shape[:2], HEADS, SIZE).transpose(1, 2) for part in x.split(WIDTH, dim=2)
    )
    return q, k, v


def permuted(x: Any) -> Triple:
    """The same, as vision transformers have it."""
    q, k, v = x.reshape(*x.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4).unbind(0)
    return q, k, v


def by_heads(x: Any) -> Triple:
    """Queries, keys and values of one head after those of another."""
    q, k, v = x.view(*x.shape[:2], HEADS, 3, SIZE).permute(3, 0, 2, 1, 4)
    return q, k, v


def fused(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Attention by PyTorch's own function."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def by_hand(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Attention as it is in many scripts."""
    scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(SIZE))
    if causal:
        scores = scores.masked_fill(torch.tril(torch.ones(TOKENS, TOKENS)) == 0, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def divided(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """The same, with a mask that is added."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(SIZE)
    if causal:
        scores = scores + torch.full((TOKENS, TOKENS), float("-inf")).triu(1)
    return torch.softmax(scores, dim=-1) @ v


def unscaled(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Attention whose scores are not scaled, as in GPT-Neo, where a mask is the least number."""
    scores = q @ k.transpose(-2, -1)
    if causal:
        mask = torch.tril(torch.ones(TOKENS, TOKENS, dtype=torch.bool))
        scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1) @ v


class Dropped(nn.Module):  # type: ignore[misc]  # PyTorch may be absent
    """Attention that drops shares in training: by PyTorch's own function, or as it is in many
    scripts.
    """

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.fused, self.drop = fused, nn.Dropout(0.1)

    def forward(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        """Return the results by heads."""
        if self.fused:
            rate = 0.1 if self.training else 0.0
            return functional.scaled_dot_product_attention(
                q, k, v, dropout_p=rate, is_causal=causal
            )
        scores = q @ k.transpose(-2, -1) / math.sqrt(SIZE)
        if causal:
            scores = scores.masked_fill(torch.ones(TOKENS, TOKENS).triu(1) > 0, float("-inf"))
        return self.drop(torch.softmax(scores, dim=-1)) @ v


class Tanh(nn.Module):  # type: ignore[misc]  # PyTorch may be absent
    """GELU by tanh, spelled out."""

    def forward(self, x: Any) -> Any:
        """Return the activations."""
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class Erf(nn.Module):  # type: ignore[misc]
    """GELU by erf, spelled out."""

    def forward(self, x: Any) -> Any:
        """Return the activations."""
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


class Rms(nn.Module):  # type: ignore[misc]
    """RMS norm, spelled out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        """Return the rows, normalised."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Norm(nn.Module):  # type: ignore[misc]
    """Layer norm, spelled out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Any) -> Any:
        """Return the rows, normalised."""
        centred = x - x.mean(-1, keepdim=True)
        return (
            centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-6) * self.weight
            + self.bias
        )


class Block(nn.Module):  # type: ignore[misc]
    """A block of a transformer, with one layer for queries, keys and values, or, without `parts`,
    three.
    """

    def __init__(
        self,
        parts: Callable[[Any], Triple] | None = split,
        attend: Callable[..., Any] = fused,
        norm: Callable[[int], Any] = nn.LayerNorm,
        gelu: Any = None,
        *,
        causal: bool = True,
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleList([norm(WIDTH), norm(WIDTH)])
        self.qkv = nn.ModuleList(
            [nn.Linear(WIDTH, 3 * WIDTH)] if parts else [nn.Linear(WIDTH, WIDTH) for _ in "qkv"]
        )
        self.out, self.up, self.down = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 20),
            nn.Linear(20, WIDTH),
        )
        self.gelu = gelu or nn.GELU()
        self.parts, self.attend, self.causal = parts, attend, causal

    def forward(self, x: Any) -> Any:
        """Return rows of tokens (samples, tokens, values)."""
        y = self.norms[0](x)
        if self.parts is None:
            q, k, v = (own(y).view(*x.shape[:2], HEADS, SIZE).transpose(1, 2) for own in self.qkv)
        else:
            q, k, v = self.parts(self.qkv[0](y))
        x = x + self.out(self.attend(q, k, v, self.causal).transpose(1, 2).reshape(x.shape))
        return x + self.down(self.gelu(self.up(self.norms[1](x))))


class Grouped(nn.Module):  # type: ignore[misc]
    """A block of attention alone, whose 4 heads share `groups` keys and values, by one layer or
    three.
    """

    def __init__(self, groups: int, repeat: Callable[[Any, int], Any], *, fused: bool) -> None:
        super().__init__()
        self.groups, self.repeat, self.size = groups, repeat, WIDTH // 4
        widths = [WIDTH, groups * self.size, groups * self.size]
        self.qkv = nn.ModuleList(
            nn.Linear(WIDTH, width) for width in ([sum(widths)] if fused else widths)
        )
        self.widths, self.out = widths, nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        """Return rows of tokens (samples, tokens, values)."""
        parts = (
            [own(x) for own in self.qkv]
            if len(self.qkv) > 1
            else self.qkv[0](x).split(self.widths, 2)
        )
        q, k, v = (part.view(*x.shape[:2], -1, self.size).transpose(1, 2) for part in parts)
        k, v = (self.repeat(part, 4 // self.groups) for part in (k, v))
        return x + self.out(fused(q, k, v, True).transpose(1, 2).reshape(x.shape))


def interleaved(x: Any, times: int) -> Any:
    """Each of some heads (samples, heads, tokens, values), so often, as in PyTorch's function."""
    return x.repeat_interleave(times, 1)


def expanded(x: Any, times: int) -> Any:
    """The same, as in Llama."""
    samples, heads, tokens, size = x.shape
    return (
        x[:, :, None]
        .expand(samples, heads, times, tokens, size)
        .reshape(samples, heads * times, tokens, size)
    )


def tiled(x: Any, times: int) -> Any:
    """All heads, so often: heads that share keys are not side by side."""
    return x.repeat(1, times, 1, 1)


class Gpt(nn.Module):  # type: ignore[misc]
    """Symbols, learnt positions, blocks, and a classifier of each token."""

    def __init__(self, *blocks: Any) -> None:
        super().__init__()
        self.symbols, self.positions = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(2 * TOKENS, WIDTH)
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, SYMBOLS, bias=False)

    def forward(self, x: Any) -> Any:
        """Return the logits of all tokens."""
        return self.head(
            self.norm(self.blocks(self.symbols(x) + self.positions(torch.arange(TOKENS))))
        )


class Vit(nn.Module):  # type: ignore[misc]
    """Patches, `by_views` or a convolution, maybe a class token, positions, blocks, and a classifier
    of the class token or of the mean.
    """

    def __init__(self, *blocks: Any, has_token: bool, by_views: bool = False) -> None:
        super().__init__()
        self.by_views = by_views
        self.patches = nn.Linear(192, WIDTH) if by_views else nn.Conv2d(3, WIDTH, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.zeros(1, 16 + has_token, WIDTH))
        self.blocks, self.head, self.has_token = (
            nn.Sequential(*blocks),
            nn.Linear(WIDTH, 10),
            has_token,
        )

    def forward(self, x: Any) -> Any:
        """Return the logits of images."""
        if self.by_views:
            x = x.view(x.shape[0], 3, 4, 8, 4, 8).permute(0, 2, 4, 5, 1, 3)
            x = self.patches(x.reshape(x.shape[0], 16, 192))
        else:
            x = self.patches(x).flatten(2).transpose(1, 2)
        if self.has_token:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.blocks(x + self.positions)
        return self.head(x[:, 0] if self.has_token else x.mean(1))


class Encoder(nn.Module):  # type: ignore[misc]
    """PyTorch's own encoder."""

    def __init__(self, *, norm_first: bool, dropout: float = 0.0) -> None:
        super().__init__()
        keys = {
            "dropout": dropout,
            "activation": "gelu",
            "batch_first": True,
            "norm_first": norm_first,
        }
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 20, **keys)
        self.symbols, self.head = nn.Embedding(SYMBOLS, WIDTH), nn.Linear(WIDTH, SYMBOLS)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Any) -> Any:
        """Return the logits of all tokens."""
        return self.head(self.layers(self.symbols(x)))


class Multihead(nn.Module):  # type: ignore[misc]
    """PyTorch's own attention, with samples or tokens first, which merges heads and samples."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.symbols, self.head = nn.Embedding(SYMBOLS, WIDTH), nn.Linear(WIDTH, SYMBOLS)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)
        self.batch_first = batch_first

    def forward(self, x: Any) -> Any:
        """Return the logits of all tokens."""
        x = self.symbols(x)
        y = x if self.batch_first else x.transpose(0, 1)
        y = self.attention(y, y, y, need_weights=False)[0]
        return self.head(x + (y if self.batch_first else y.transpose(0, 1)))


def exported(model: Any, x: Any, how: str, **keys: Any) -> bytes:
    """Return the ONNX file of a model, by one of PyTorch's exporters; `open` leaves the number of
    samples open.
    """
    made = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how.startswith("dynamo"):
            pytest.importorskip(
                "onnxscript", reason="onnxscript, which PyTorch's new exporter needs, is missing"
            )
            open_samples = ({0: torch.export.Dim("n")},) if how.endswith("open") else None
            program = torch.onnx.export(
                model, (x,), dynamo=True, verbose=False, dynamic_shapes=open_samples, **keys
            )
            return bytes(program.model_proto.SerializeToString())
        open_axes = {"x": {0: "n"}} if how.endswith("open") else None
        torch.onnx.export(
            model, (x,), made, dynamo=False, input_names=["x"], dynamic_axes=open_axes, **keys
        )
    return made.getvalue()

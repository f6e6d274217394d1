"""Models as Hugging Face, timm and others write them, in small, with their modules' names and
views.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from models import CLASSES, Of
from torch import nn
from torch.nn import functional

SYMBOLS, STEPS, WIDTH, HEADS = 40, 12, 24, 3


class Attention(nn.Module):
    """Queries, keys and values of three Linears, heads by view and transpose; perhaps rotary or
    grouped.
    """

    def __init__(self, width: int = WIDTH, heads: int = HEADS, **keys: Any) -> None:
        super().__init__()
        self.heads, self.kv, self.size = heads, keys.get("kv", heads), width // heads
        self.causal, self.rotary = keys.get("causal", False), keys.get("rotary", 0)
        bias = keys.get("bias", True)
        self.q_proj = nn.Linear(width, width, bias=bias)
        self.k_proj, self.v_proj = (
            nn.Linear(width, self.kv * self.size, bias=bias) for _ in range(2)
        )
        self.o_proj = nn.Linear(width, width, bias=bias)
        self.norms = nn.ModuleList(
            nn.RMSNorm(self.size) for _ in range(2 * keys.get("normed", False))
        )
        if self.rotary:
            turns = 1.0 / 10000.0 ** (torch.arange(0, self.rotary, 2).float() / self.rotary)
            self.register_buffer("inv_freq", turns, persistent=False)
        self.slopes = keys.get("slopes", False)

    def turned(self, x: Any, cosines: Any, sines: Any) -> Any:
        """Turn the first `rotary` channels, as Llama does."""
        own, rest = x[..., : self.rotary], x[..., self.rotary :]
        half = self.rotary // 2
        other = torch.cat([-own[..., half:], own[..., :half]], -1)
        made = own * cosines + other * sines
        return made if rest.shape[-1] == 0 else torch.cat([made, rest], -1)

    def forward(self, x: Any, memory: Any = None) -> Any:
        """Return the rows, mixed."""
        memory = x if memory is None else memory
        split = (*x.shape[:2], -1, self.size)
        q = self.q_proj(x).view(split).transpose(1, 2)
        k = self.k_proj(memory).view(*memory.shape[:2], -1, self.size).transpose(1, 2)
        v = self.v_proj(memory).view(*memory.shape[:2], -1, self.size).transpose(1, 2)
        if len(self.norms):
            q, k = self.norms[0](q), self.norms[1](k)
        if self.rotary:
            angles = torch.outer(torch.arange(x.shape[1]).float(), self.inv_freq)
            angles = torch.cat([angles, angles], -1)[None, None]
            q, k = (self.turned(own, angles.cos(), angles.sin()) for own in (q, k))
        if self.kv < self.heads:
            k, v = (own.repeat_interleave(self.heads // self.kv, 1) for own in (k, v))
        mask = None
        if self.slopes:
            far = torch.arange(x.shape[1])[None] - torch.arange(x.shape[1])[:, None]
            mask = far * torch.tensor([2.0**-n for n in range(1, self.heads + 1)])[:, None, None]
            mask = mask.masked_fill(far > 0, float("-inf"))[None]
        causal = self.causal and mask is None
        made = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.o_proj(made.transpose(1, 2).reshape(*x.shape[:2], -1).contiguous())


class Gated(nn.Module):
    """An MLP with a gate."""

    def __init__(self, act: Callable[[Any], Any] = functional.silu) -> None:
        super().__init__()
        self.act, self.gate_proj, self.up_proj = (
            act,
            *(nn.Linear(WIDTH, 48, bias=False) for _ in "ab"),
        )
        self.down_proj = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        """Return the rows."""
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


def mlp(act: nn.Module, width: int = WIDTH) -> nn.Module:
    """The usual MLP."""
    return nn.Sequential(nn.Linear(width, 2 * width), act, nn.Linear(2 * width, width))


class Block(nn.Module):
    """A pre- or post-norm block, or a parallel one."""

    def __init__(
        self, norm: Callable[[int], nn.Module], feed: nn.Module, form: str = "pre", **keys: Any
    ) -> None:
        super().__init__()
        self.form, self.self_attn, self.mlp = form, Attention(**keys), feed
        self.input_layernorm, self.post_layernorm = norm(WIDTH), norm(WIDTH)
        self.cross = Attention(bias=False) if keys.get("cross") else None
        self.cross_norm = norm(WIDTH) if keys.get("cross") else None
        self.ls1, self.ls2 = (
            nn.Parameter(0.1 * torch.ones(WIDTH)) if keys.get("scaled") else 1 for _ in "ab"
        )

    def forward(self, x: Any, memory: Any = None) -> Any:
        """Return the rows."""
        if self.form == "post":
            x = self.input_layernorm(x + self.self_attn(x))
            return self.post_layernorm(x + self.mlp(x))
        if self.form == "parallel":
            return x + self.self_attn(self.input_layernorm(x)) + self.mlp(self.post_layernorm(x))
        y = self.self_attn(self.input_layernorm(x))
        x = x + (y if isinstance(self.ls1, int) else self.ls1 * y)
        if self.cross is not None:
            x = x + self.cross(self.cross_norm(x), memory)
        y = self.mlp(self.post_layernorm(x))
        return x + (y if isinstance(self.ls2, int) else y * self.ls2)


class Causal(nn.Module):
    """A language model of Hugging Face's kind."""

    def __init__(
        self, block: Callable[[], nn.Module], norm: Callable[[int], nn.Module], **keys: Any
    ) -> None:
        super().__init__()
        self.embed_tokens, self.scale = nn.Embedding(SYMBOLS, WIDTH), keys.get("scale", 1)
        self.offset = keys.get("offset", 0)
        self.embed_positions = (
            nn.Embedding(STEPS + self.offset, WIDTH) if keys.get("positions") else None
        )
        self.layers, self.norm = nn.ModuleList(block() for _ in range(2)), norm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, SYMBOLS, bias=False)
        if keys.get("tied", True):
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, ids: Any) -> Any:
        """Return the logits."""
        ids = ids.view(-1, ids.shape[-1])
        x = self.embed_tokens(ids)
        x = x if self.scale == 1 else x * torch.tensor(self.scale, dtype=x.dtype)
        if self.embed_positions is not None:
            x = x + self.embed_positions(torch.arange(ids.shape[1]).unsqueeze(0) + self.offset)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x)).float()


class Bert(nn.Module):
    """An encoder of texts with token types, and a pooler or none."""

    def __init__(self, *, types: bool = True, pooled: bool = True, offset: int = 0) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(SYMBOLS, WIDTH, padding_idx=0)
        self.position_embeddings = nn.Embedding(STEPS + offset, WIDTH)
        self.token_type_embeddings = nn.Embedding(2, WIDTH) if types else None
        self.register_buffer("position_ids", torch.arange(STEPS)[None] + offset, persistent=False)
        self.LayerNorm, self.pooled = nn.LayerNorm(WIDTH, 1e-12), pooled
        self.layer = nn.ModuleList(Block(nn.LayerNorm, mlp(nn.GELU()), "post") for _ in range(2))
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.classifier = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, ids: Any) -> Any:
        """Return the logits."""
        x = self.word_embeddings(ids)
        if self.token_type_embeddings is not None:
            x = x + self.token_type_embeddings(torch.zeros_like(ids))
        x = self.LayerNorm(x + self.position_embeddings(self.position_ids[:, : ids.shape[1]]))
        for layer in self.layer:
            x = layer(x)
        x = self.pooler(x[:, 0])
        return self.classifier(torch.tanh(x) if self.pooled else torch.relu(x))


class Gpt2(nn.Module):
    """GPT-2 as Hugging Face writes it: Conv1D by addmm, heads split out of one array."""

    class Conv1D(nn.Module):
        """A Linear whose weight is transposed."""

        def __init__(self, outputs: int, inputs: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(0.2 * torch.randn(inputs, outputs))
            self.bias = nn.Parameter(torch.zeros(outputs))

        def forward(self, x: Any) -> Any:
            """Return the rows."""
            size = (*x.size()[:-1], len(self.bias))
            return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(size)

    class Layer(nn.Module):
        """A block."""

        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.c_attn, self.c_proj = Gpt2.Conv1D(3 * WIDTH, WIDTH), Gpt2.Conv1D(WIDTH, WIDTH)
            self.c_fc, self.c_out = Gpt2.Conv1D(96, WIDTH), Gpt2.Conv1D(WIDTH, 96)
            self.drop = nn.Dropout(0.0)

        def forward(self, x: Any) -> Any:
            """Return the rows."""
            split = (*x.shape[:-1], -1, WIDTH // HEADS)
            q, k, v = self.c_attn(self.ln_1(x)).split(WIDTH, dim=2)
            q, k, v = (own.view(split).transpose(1, 2) for own in (q, k, v))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.drop(
                self.c_proj(y.transpose(1, 2).reshape(*x.shape[:-1], -1).contiguous())
            )
            h = self.c_fc(self.ln_2(x))
            h = (
                0.5
                * h
                * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0))))
            )
            return x + self.c_out(h)

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(STEPS, WIDTH)
        self.h, self.ln_f = nn.ModuleList(Gpt2.Layer() for _ in range(2)), nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, SYMBOLS, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Any) -> Any:
        """Return the logits."""
        ids = ids.view(-1, ids.size()[-1])
        places = torch.arange(0, ids.shape[1], dtype=torch.long).unsqueeze(0)
        x = self.wte(ids) + self.wpe(places)
        for layer in self.h:
            x = layer(x)
        x = self.ln_f(x).view((-1, ids.shape[1], WIDTH))
        return self.lm_head(x)


class T5(nn.Module):
    """An encoder and a decoder of the same symbols, with cross-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.places = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(STEPS, WIDTH)
        self.encoder = Block(nn.LayerNorm, mlp(nn.ReLU()))
        self.decoder = Block(nn.LayerNorm, mlp(nn.ReLU()), causal=True, cross=True)
        self.lm_head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, ids: Any) -> Any:
        """Return the logits."""
        x = self.shared(ids) + self.places(torch.arange(ids.shape[1]))
        return self.lm_head(self.decoder(x, self.encoder(x)))


class Experts(nn.Module):
    """A mixture of experts, of which the router weights all."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(WIDTH, 2), nn.ModuleList(Gated() for _ in range(2))

    def forward(self, x: Any) -> Any:
        """Return the rows."""
        shares = self.gate(x).softmax(-1)
        return sum(shares[..., n : n + 1] * expert(x) for n, expert in enumerate(self.experts))


class Vit(nn.Module):
    """A vision transformer: patches, a class token, a distillation token, or the mean."""

    def __init__(self, tokens: int = 1, **keys: Any) -> None:
        super().__init__()
        self.tokens, self.patch_embed = tokens, nn.Conv2d(3, WIDTH, 4, 4)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, tokens, WIDTH)) if tokens else None
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 4 + tokens, WIDTH))
        self.blocks = nn.ModuleList(Block(nn.LayerNorm, mlp(nn.GELU()), **keys) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH, 1e-6), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1)
        x = x + self.pos_embed
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x[:, 0] if self.tokens else x.mean(1))


class SqueezeExcite(nn.Module):
    """timm's, with a gate of its own."""

    def __init__(self, channels: int, gate: nn.Module | None = None) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)
        self.gate = gate or nn.Sigmoid()

    def forward(self, x: Any) -> Any:
        """Return the maps, scaled."""
        return x * self.gate(self.fc2(torch.relu(self.fc1(x.mean((2, 3), keepdim=True)))))


class LinearExcite(nn.Module):
    """Squeeze-and-excitation as its first code has it, by Linear and view."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Linear(channels, 4, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(4, channels, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x: Any) -> Any:
        """Return the maps, scaled."""
        b, c, _, _ = x.size()
        return x * self.fc(self.pool(x).view(b, c)).view(b, c, 1, 1).expand_as(x)


class ConvNext(nn.Module):
    """A block of ConvNeXt as timm writes it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_dw, self.norm = (
            nn.Conv2d(channels, channels, 7, padding=3, groups=channels),
            nn.LayerNorm(channels, 1e-6),
        )
        self.mlp, self.gamma = mlp(nn.GELU(), channels), nn.Parameter(0.1 * torch.ones(channels))

    def forward(self, x: Any) -> Any:
        """Return the maps."""
        y = self.mlp(self.norm(self.conv_dw(x).permute(0, 2, 3, 1))) * self.gamma
        return x + y.permute(0, 3, 1, 2)


def shortcut(*modules: nn.Module) -> nn.Module:
    """Modules with a shortcut past them."""
    return Of(lambda self, x: x + self.fn(x), fn=nn.Sequential(*modules))


def images(*middle: nn.Module, channels: int = 8) -> Callable[[], nn.Module]:
    """A stem, the modules in question, and a classifier."""
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)
    return lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        *middle,
        *ends,
    )


def unet(up: Callable[[], nn.Module], channels: int) -> Callable[[], nn.Module]:
    """A U-Net of two levels, whose maps a classifier takes."""

    def forward(self: Any, x: Any) -> Any:
        beside = self.enc(x)
        larger = self.up(self.mid(self.pool(beside)))
        return self.head(self.dec(torch.cat([larger, beside], 1)).mean((2, 3)))

    return lambda: Of(
        forward,
        enc=nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()),
        pool=nn.MaxPool2d(2),
        mid=nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()),
        up=up(),
        dec=nn.Sequential(nn.Conv2d(8 + channels, 8, 3, padding=1), nn.ReLU()),
        head=nn.Linear(8, CLASSES),
    )


def texts(
    *middle: nn.Module, channels: int = 16, last: Callable[[Any], Any] = lambda y: y.mean(2)
) -> Callable[[], nn.Module]:
    """Convolutions over rows of values."""
    return lambda: Of(
        lambda self, x: self.fc(last(self.net(x.transpose(1, 2)))),
        net=nn.Sequential(*middle),
        fc=nn.Linear(channels, CLASSES),
    )


def mixer(width: int = 12, tokens: int = 4) -> nn.Module:
    """MLP-Mixer's block."""
    return Of(
        lambda self, x: self.second(x + self.mix(self.norm(x).transpose(1, 2)).transpose(1, 2)),
        norm=nn.LayerNorm(width),
        mix=nn.Sequential(nn.Linear(tokens, 8), nn.GELU(), nn.Linear(8, tokens)),
        second=shortcut(nn.LayerNorm(width), mlp(nn.GELU(), width)),
    )


Table = dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]
TEXT, IMAGES, ROWS = (STEPS,), (3, 8, 8), (16, 6)


def llama(**keys: Any) -> Callable[[], nn.Module]:
    """A language model of Llama's kind."""
    own: dict[str, Any] = {"causal": True, "rotary": 8, "bias": False, **keys}
    return lambda: Causal(
        lambda: Block(nn.RMSNorm, Gated(), **own), nn.RMSNorm, tied=own.get("tied", False)
    )


TEXTS: Table = {
    "hf-bert": (Bert, TEXT),
    "hf-distilbert": (lambda: Bert(types=False, pooled=False), TEXT),
    "hf-roberta": (lambda: Bert(offset=2), TEXT),
    "hf-gpt2": (Gpt2, TEXT),
    "hf-opt": (
        lambda: Causal(
            lambda: Block(nn.LayerNorm, mlp(nn.ReLU()), causal=True),
            nn.LayerNorm,
            positions=True,
            offset=2,
        ),
        TEXT,
    ),
    "hf-llama": (llama(), TEXT),
    "hf-mistral": (llama(kv=1), TEXT),
    "hf-qwen2": (llama(bias=True, kv=1, tied=True), TEXT),
    "hf-qwen3": (llama(normed=True), TEXT),
    "hf-gemma": (
        lambda: Causal(
            lambda: Block(
                nn.RMSNorm,
                Gated(lambda x: functional.gelu(x, approximate="tanh")),
                causal=True,
                rotary=8,
                bias=False,
            ),
            nn.RMSNorm,
            scale=WIDTH**0.5,
        ),
        TEXT,
    ),
    "hf-pythia": (
        lambda: Causal(
            lambda: Block(nn.LayerNorm, mlp(nn.GELU()), "parallel", causal=True, rotary=2),
            nn.LayerNorm,
            tied=False,
        ),
        TEXT,
    ),
    "hf-bloom": (
        lambda: Causal(
            lambda: Block(nn.LayerNorm, mlp(nn.GELU()), causal=True, slopes=True), nn.LayerNorm
        ),
        TEXT,
    ),
    "hf-t5": (T5, TEXT),
    "hf-mixtral": (
        lambda: Causal(lambda: Block(nn.RMSNorm, Experts(), causal=True), nn.RMSNorm),
        TEXT,
    ),
}
VISION: Table = {
    "hf-vit": (Vit, IMAGES),
    "hf-deit": (lambda: Vit(2), IMAGES),
    "hf-dinov2": (lambda: Vit(scaled=True), IMAGES),
    "timm-vit-mean": (lambda: Vit(0), IMAGES),
    "timm-mixer": (
        lambda: Of(
            lambda self, x: self.head(
                self.norm(self.block(self.patch(x).flatten(2).transpose(1, 2))).mean(1)
            ),
            patch=nn.Conv2d(3, 12, 4, 4),
            block=mixer(),
            norm=nn.LayerNorm(12),
            head=nn.Linear(12, CLASSES),
        ),
        IMAGES,
    ),
    "timm-seresnet": (
        images(
            shortcut(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), SqueezeExcite(8)), nn.ReLU()
        ),
        IMAGES,
    ),
    "timm-mobilenetv3": (
        images(
            nn.Conv2d(8, 8, 3, 2, 1, groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.Hardswish(),
            SqueezeExcite(8, nn.Hardsigmoid()),
        ),
        IMAGES,
    ),
    "senet": (images(shortcut(nn.Conv2d(8, 8, 3, padding=1), LinearExcite(8))), IMAGES),
    "timm-convnext": (images(ConvNext(8), ConvNext(8)), IMAGES),
    "timm-resnet-d": (
        images(nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False), nn.Conv2d(8, 8, 1)),
        IMAGES,
    ),
    "timm-convmixer": (
        images(
            shortcut(nn.Conv2d(8, 8, 5, padding="same", groups=8), nn.GELU(), nn.BatchNorm2d(8)),
            nn.Conv2d(8, 8, 1),
            nn.GELU(),
        ),
        IMAGES,
    ),
    "timm-poolformer": (
        images(
            Of(
                lambda self, x: x + self.scale.view(-1, 1, 1) * (self.pool(self.norm(x)) - x),
                norm=nn.GroupNorm(1, 8),
                pool=nn.AvgPool2d(3, 1, 1, count_include_pad=False),
                scale=nn.Parameter(torch.ones(8)),
            )
        ),
        IMAGES,
    ),
    "mnist-tutorial": (
        lambda: Of(
            lambda self, x: self.fc2(
                torch.relu(
                    self.fc1(
                        torch.flatten(
                            functional.max_pool2d(
                                torch.relu(self.conv2(torch.relu(self.conv1(x)))), 2
                            ),
                            1,
                        )
                    )
                )
            ),
            conv1=nn.Conv2d(3, 8, 3),
            conv2=nn.Conv2d(8, 8, 3),
            fc1=nn.Linear(32, 16),
            fc2=nn.Linear(16, CLASSES),
        ),
        IMAGES,
    ),
    "unet-nearest": (unet(lambda: nn.Upsample(scale_factor=2), 16), IMAGES),
    "unet-bilinear": (unet(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), 16), IMAGES),
    "unet-corners": (
        unet(lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), 16),
        IMAGES,
    ),
    "unet-transposed": (unet(lambda: nn.ConvTranspose2d(16, 8, 2, 2), 8), IMAGES),
    "gate-of-pixels": (
        images(
            Of(lambda self, x: x * torch.sigmoid(self.conv(x)), conv=nn.Conv2d(8, 1, 3, padding=1))
        ),
        IMAGES,
    ),
    "affine": (images(Of(lambda self, x: x * 0.5 + 1.0)), IMAGES),
    "normalised-inside": (
        lambda: Of(
            lambda self, x: self.net((x - self.mean) / self.std),
            net=images()(),
            mean=nn.Buffer(torch.full((1, 3, 1, 1), 0.4), persistent=False),
            std=nn.Buffer(torch.full((1, 3, 1, 1), 0.2), persistent=False),
        ),
        IMAGES,
    ),
}
SERIES: Table = {
    "text-cnn": (
        texts(
            nn.Conv1d(6, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(16, 16, 3),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            last=lambda y: y.squeeze(-1),
        ),
        ROWS,
    ),
    "wav2vec": (
        texts(
            nn.Conv1d(6, 16, 4, 2),
            nn.GroupNorm(16, 16),
            nn.GELU(),
            nn.Conv1d(16, 16, 3, 2),
            nn.GELU(),
        ),
        ROWS,
    ),
    "max-over-time": (texts(nn.Conv1d(6, 16, 5), nn.ReLU(), last=lambda y: y.amax(2)), ROWS),
}
USUAL: Table = TEXTS | VISION | SERIES

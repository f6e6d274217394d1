"""Models of PyTorch in memory, as people write them, for tests of `emuchain.from_torch`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.data import Dataset

torch = pytest.importorskip("torch", reason="PyTorch, of which these models are, is not installed")
pytest.importorskip("onnxscript", reason="onnxscript, which PyTorch's exporter needs, is missing")
nn = torch.nn

CLASSES, SYMBOLS, STEPS = 5, 20, 8


def cnn(rate: float = 0.0) -> Any:
    """Convolutions with batch normalisation, pools, and a classifier behind dropout."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12, momentum=0.3), nn.ReLU()),
        *(nn.Flatten(), nn.Dropout(rate), nn.Linear(12 * 16, CLASSES)),
    )


class Block(nn.Module):  # type: ignore[misc, name-defined]  # torch is optional
    """A basic block of a residual network."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = (
            None
            if stride == 1
            else nn.Sequential(
                nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )
        )

    def forward(self, x: Any) -> Any:
        """Return the maps."""
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):  # type: ignore[misc, name-defined]
    """A small residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 8, 1), Block(8, 8, 1))
        self.layer2 = nn.Sequential(Block(8, 16, 2))
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        x = self.layer2(self.layer1(torch.relu(self.bn1(self.conv1(x)))))
        return self.fc(x.mean((2, 3)))


class Vit(nn.Module):  # type: ignore[misc, name-defined]
    """A small vision transformer with two class tokens and PyTorch's own encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 12, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 2, 12) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, 6, 12) * 0.02)
        encoder = nn.TransformerEncoderLayer(
            12, 3, 24, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.encoder(x)[:, 0]))


class Patches(nn.Module):  # type: ignore[misc, name-defined]
    """A vision transformer whose patches of 4 x 2 are views of images, with channels last, and a
    product of what they hold.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.positions = nn.Linear(24, 12), nn.Parameter(torch.randn(1, 8, 12) * 0.02)
        self.encoder = nn.TransformerEncoderLayer(12, 3, 24, 0.0, batch_first=True)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        x = x.reshape(x.shape[0], 3, 2, 4, 4, 2).permute(0, 2, 4, 3, 5, 1)
        x = self.patches(x.reshape(x.shape[0], 8, 24)) + self.positions
        return self.head(self.encoder(x).mean(1))


class Lstm(nn.Module):  # type: ignore[misc, name-defined]
    """A classifier of an LSTM's last step."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.fc = nn.LSTM(6, 10, batch_first=True), nn.Linear(10, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self.fc(self.rnn(x)[0][:, -1])


class Series(nn.Module):  # type: ignore[misc, name-defined]
    """Convolutions and a pool over time, of which the maximum is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv1d(6, 8, 3, padding=1), nn.BatchNorm1d(8)
        self.pool, self.conv2 = nn.MaxPool1d(2), nn.Conv1d(8, 8, 3, 2, padding=1, groups=2)
        self.norm2, self.fc = nn.GroupNorm(2, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        x = self.pool(torch.relu(self.norm1(self.conv1(x.transpose(1, 2)))))
        return self.fc(self.norm2(self.conv2(x)).amax(2))


class Viewed(nn.Module):  # type: ignore[misc, name-defined]
    """Layers over rows of values that are seen as something else first."""

    def __init__(self, view: Callable[[Any], Any], *layers: Any) -> None:
        super().__init__()
        self.view, self.layers = view, nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self.layers(self.view(x))


def signal() -> Any:
    """Return convolutions over time, whose samples have their channels first."""
    convolutions = nn.Conv1d(6, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 8, 3, 2)
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(8 * ((STEPS - 1) // 2), CLASSES))


def one_channel() -> Any:
    """Return convolutions over time of a row of values, which get an axis for their channel."""
    convolutions = nn.Conv1d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()
    return Viewed(lambda x: x.unsqueeze(1), *convolutions, nn.Linear(8 * 6, CLASSES))


def rows_of_image() -> Any:
    """Return attention over the rows of images that come as rows of values."""
    encoder = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)
    layers = nn.Linear(6, 8), encoder, nn.Flatten(), nn.Linear(8 * 4, CLASSES)
    return Viewed(lambda x: x.view(-1, 4, 6), *layers)


class Tied(nn.Module):  # type: ignore[misc, name-defined]
    """A language model whose head has the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, 12)
        self.positions = nn.Parameter(torch.randn(1, STEPS + 2, 12) * 0.02)
        self.encoder = nn.TransformerEncoderLayer(12, 2, 24, 0.0, batch_first=True)
        self.head = nn.Linear(12, SYMBOLS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        """Return the logits of each step."""
        return self.head(self.encoder(self.embedding(x) + self.positions[:, : x.shape[1]]))


class Normed(nn.Module):  # type: ignore[misc, name-defined]
    """A language model of attention alone: heads that share keys, which are normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(SYMBOLS, 12), nn.Linear(12, SYMBOLS)
        self.q, self.k, self.v = (nn.Linear(12, width) for width in (12, 6, 6))
        self.q_norm, self.k_norm, self.o = nn.RMSNorm(3), nn.RMSNorm(3), nn.Linear(12, 12)

    def forward(self, x: Any) -> Any:
        """Return the logits of each step."""
        x = self.embedding(x)
        q, k, v = (layer(x).unflatten(2, (-1, 3)) for layer in (self.q, self.k, self.v))
        parts = (own.transpose(1, 2) for own in (self.q_norm(q), self.k_norm(k), v))
        keys = {"is_causal": True, "enable_gqa": True}
        y = nn.functional.scaled_dot_product_attention(*parts, **keys)
        return self.head(x + self.o(y.transpose(1, 2).flatten(2)))


class Shifted(nn.Module):  # type: ignore[misc, name-defined]
    """A language model by other means: products by Einstein's convention, a multiple of positions,
    scales of norms that are parameters plus 1, and a norm that learns nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(SYMBOLS, 12), nn.Linear(12, SYMBOLS)
        self.places = nn.Parameter(torch.randn(STEPS, 12))
        self.gamma, self.g = (nn.Parameter(torch.randint(-9, 9, (12,)) / 64) for _ in "ab")
        self.q, self.k, self.v, self.o = (nn.Linear(12, 12) for _ in "qkvo")

    def forward(self, x: Any) -> Any:
        """Return the logits of each step."""
        x = self.embedding(x) + self.places * 0.25
        y = nn.functional.layer_norm(x, (12,)) * (self.gamma + 1)
        q, k, v = (own(y).unflatten(2, (2, 6)).transpose(1, 2) for own in (self.q, self.k, self.v))
        shares = (torch.einsum("bhid,bhjd->bhij", q, k) * 6**-0.5).softmax(-1)
        y = torch.einsum("bhij,bhjd->bhid", shares, v).transpose(1, 2).flatten(2)
        x = nn.functional.normalize(x + self.o(y), dim=-1) * 12**0.5 * (1 + self.g)
        return self.head(nn.functional.layer_norm(x, (12,)))


class Gated(nn.Module):  # type: ignore[misc, name-defined]
    """A language model whose layers are split: by chunk, by numbers of channels, and in a list. Its
    positions count symbols that are no padding, and ReLU is squared.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(SYMBOLS, 12), nn.Linear(12, SYMBOLS)
        self.up, self.down = nn.Linear(12, 20), nn.Linear(10, 12)
        self.both, self.parts = nn.Linear(12, 20), nn.Linear(12, 30)
        self.places = nn.Embedding(STEPS, 12)

    def forward(self, x: Any) -> Any:
        """Return the logits of each step."""
        mask = x.ne(SYMBOLS).int()
        x = self.embedding(x) + self.places(torch.cumsum(mask, 1) * mask - 1)
        y, gate = self.up(x).chunk(2, dim=-1)
        x = x + self.down(y * nn.functional.silu(gate))
        x = x + torch.relu(self.both(x)[..., 3:15]) ** 2
        one, _, other = torch.split(self.parts(x), [12, 6, 12], -1)
        return self.head(x + one - other)


class Branches(nn.Module):  # type: ignore[misc, name-defined]
    """Convolutions over groups of channels one after another (Res2Net), and a vision transformer
    that takes its second row and the mean of those behind it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.mix = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 12, 4, 4)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.token = nn.Parameter(torch.randn(1, 2, 12) * 0.02)
        self.encoder = nn.TransformerEncoderLayer(12, 3, 24, 0.0, batch_first=True)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        one, two, three = torch.split(torch.relu(self.stem(x)), 4, 1)
        two = torch.relu(self.convs[0](two))
        three = torch.relu(self.convs[1](two + three))
        x = self.mix(torch.cat([one, two, three], 1)).flatten(2).transpose(1, 2)
        x = self.encoder(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1))
        return self.head(torch.cat([x[:, 1], x[:, 2:].mean(1)], 1))


class Shared(nn.Module):  # type: ignore[misc, name-defined]
    """Attention whose keys have no bias (Whisper), of heads that share keys with others than their
    neighbours, or all one; and biases of logits that no model trains (BART).
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(SYMBOLS, 12), nn.Linear(12, SYMBOLS, bias=False)
        self.q, self.k, self.v = nn.Linear(12, 12), nn.Linear(12, 6, bias=False), nn.Linear(12, 6)
        self.one_q, self.one_kv = nn.Linear(12, 12, bias=False), nn.Linear(12, 6, bias=False)
        self.outs = nn.ModuleList(nn.Linear(12, 12) for _ in range(2))
        self.register_buffer("biases", torch.zeros(1, SYMBOLS))

    def forward(self, x: Any) -> Any:
        """Return the logits of each step."""
        x = self.embedding(x)
        sizes = (*x.shape[:2], -1, 3)
        q, k, v = (own(x).view(sizes).transpose(1, 2) for own in (self.q, self.k, self.v))
        k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.outs[0](y.transpose(1, 2).flatten(2))
        q, (k, v) = self.one_q(x).view(sizes).transpose(1, 2), self.one_kv(x).chunk(2, -1)
        scores = torch.einsum("b h i d, b j d -> b h i j", q, k) * 3**-0.5
        y = torch.einsum("b h i j, b j d -> b h i d", scores.softmax(-1), v)
        return self.head(x + self.outs[1](y.transpose(1, 2).flatten(2))) + self.biases


class Responses(nn.Sequential):  # type: ignore[misc, name-defined]
    """A network that normalises across channels (AlexNet), and whole maps and rows of values."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.LocalResponseNorm(5, 0.5, 0.75, 2.0)),
            *(nn.LayerNorm([8, 3, 3]), nn.Conv2d(8, 4, 2), nn.Flatten(), nn.LayerNorm(16)),
            nn.Linear(16, CLASSES),
        )


class Causal(nn.Module):  # type: ignore[misc, name-defined]
    """Convolutions over time with gaps that double, of steps before alone (TCN; Bai et al., 2018):
    padded before, at both sides and cut, and by copies of the first step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before, self.copies = nn.ConstantPad1d((2, 0), 0.0), nn.ReplicationPad1d((4, 0))
        self.one, self.two = nn.Conv1d(6, 8, 3), nn.Conv1d(8, 8, 3, dilation=2, padding=4)
        self.three, self.head = nn.Conv1d(8, 8, 2, dilation=4, groups=2), nn.Linear(8, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        x = torch.relu(self.one(self.before(x.transpose(1, 2))))
        x = x + torch.relu(self.two(x)[:, :, :-4])
        return self.head(self.three(self.copies(x))[:, :, -1])


class Cosine(nn.Module):  # type: ignore[misc, name-defined]
    """A language model whose scores are ten times cosines, and then those of normalised queries and
    keys, whose scales are parameters plus 1, times 0.25; a mask is the least number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(SYMBOLS, 12), nn.Linear(12, SYMBOLS)
        self.one, self.other = (nn.ModuleList(nn.Linear(12, 12) for _ in "qkv") for _ in "ab")
        self.outs = nn.ModuleList(nn.Linear(12, 12) for _ in range(2))
        self.scales = nn.ParameterList(torch.randint(-9, 9, (6,)) / 64 for _ in "qk")

    def forward(self, x: Any) -> Any:
        """Return the logits of each step."""
        x = self.embedding(x)
        q, k, v = (own(x).unflatten(2, (2, 6)).transpose(1, 2) for own in self.one)
        q, k = (nn.functional.normalize(own, dim=-1) for own in (q, k))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=10.0)
        x = x + self.outs[0](y.transpose(1, 2).flatten(2))
        q, k, v = (own(x).unflatten(2, (2, 6)).transpose(1, 2) for own in self.other)
        q, k = (
            own * torch.rsqrt(own.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + scale)
            for own, scale in zip((q, k), self.scales, strict=True)
        )
        mask = torch.ones(STEPS, STEPS, dtype=torch.bool).tril()
        scores = torch.where(mask, q @ k.transpose(2, 3) * 0.25, torch.finfo(torch.float32).min)
        return self.head(x + self.outs[1]((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, the (channels, rows, columns) of its samples, and what it takes of them."""

    make: Callable[[], Any]
    shape: tuple[int, int, int]
    taken: Callable[[Any], Any] = lambda maps: maps

    def model(self) -> Any:
        """Return the model, whose batch normalisation has averages, scales and shifts of its
        own.
        """
        torch.manual_seed(4)
        made = self.make()
        for module in made.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                for array, low, high in (
                    *((module.running_mean, -0.3, 0.3), (module.running_var, 0.5, 1.5)),
                    *((module.weight.data, 0.5, 1.5), (module.bias.data, -0.3, 0.3)),
                ):
                    array.uniform_(low, high)
        return made

    def data(self, samples: int) -> Dataset:
        """Return random samples, 16 of which are the test."""
        random = np.random.default_rng(7)
        if self.shape == (SYMBOLS, STEPS, 1):
            symbols = random.integers(0, SYMBOLS, (samples + 16, 1, STEPS, 1)).astype(np.int32)
            labels = random.integers(0, SYMBOLS, (samples + 16, STEPS))
            classes, count = tuple(map(str, range(SYMBOLS))), SYMBOLS
        else:
            symbols = random.integers(0, 256, (samples + 16, *self.shape), np.uint8)
            labels = random.integers(0, CLASSES, samples + 16)
            classes, count = tuple("abcde"), 0
        parts = symbols[:samples], labels[:samples], symbols[samples:], labels[samples:]
        return Dataset("random", *parts, classes, symbols=count)

    def inputs(self, data: Dataset, images: Any) -> Any:
        """Return what the model takes of a data set's images."""
        if data.symbols:
            return torch.from_numpy(images[:, 0, :, 0].astype(np.int64))
        return self.taken(torch.from_numpy(data.normalisation().apply(images)))

    def example(self, samples: int = 2) -> Any:
        """Return a batch."""
        data = self.data(samples)
        return self.inputs(data, data.train_images)


CASES = {
    "cnn": Case(cnn, (3, 8, 8)),
    "resnet": Case(ResNet, (3, 8, 8)),
    "vit": Case(Vit, (3, 8, 8)),
    "patches": Case(Patches, (3, 8, 8)),
    "lstm": Case(Lstm, (6, STEPS, 1), lambda maps: maps[..., 0].swapaxes(1, 2)),
    "series": Case(Series, (6, STEPS, 1), lambda maps: maps[..., 0].swapaxes(1, 2)),
    "signal": Case(signal, (6, STEPS, 1), lambda maps: maps[..., 0]),
    "one channel": Case(one_channel, (1, 12, 1), lambda maps: maps[:, 0, :, 0]),
    "rows of values": Case(
        rows_of_image, (6, 4, 1), lambda maps: maps[..., 0].swapaxes(1, 2).flatten(1)
    ),
    "tied": Case(Tied, (SYMBOLS, STEPS, 1)),
    "normed": Case(Normed, (SYMBOLS, STEPS, 1)),
    "shifted": Case(Shifted, (SYMBOLS, STEPS, 1)),
    "causal": Case(Causal, (6, STEPS, 1), lambda maps: maps[..., 0].swapaxes(1, 2)),
    "cosine": Case(Cosine, (SYMBOLS, STEPS, 1)),
    "responses": Case(Responses, (3, 8, 8)),
    "gated": Case(Gated, (SYMBOLS, STEPS, 1)),
    "branches": Case(Branches, (3, 8, 8)),
    "shared": Case(Shared, (SYMBOLS, STEPS, 1)),
}

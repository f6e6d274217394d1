"""The models that `export` writes: torchvision's families, and small ones as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations

CLASSES = 10
Images = tuple[int, int, int]


class Of(nn.Module):
    """Modules and a function of these and the input, which is the model's forward."""

    def __init__(self, forward: Callable[[Any, Any], Any], **modules: Any) -> None:
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self._forward = forward

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self._forward(self, x)


def vision(name: str, **keys: Any) -> Callable[[], nn.Module]:
    """A model of torchvision, with random weights."""

    def make() -> nn.Module:
        import torchvision.models

        return getattr(torchvision.models, name)(weights=None, num_classes=CLASSES, **keys)

    return make


def tied() -> nn.Module:
    """Two layers of one parameter."""
    made = nn.Sequential(
        nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)
    )
    made[5].weight = made[3].weight
    return made.append(nn.Linear(32, CLASSES))


def cnn(
    *middle: nn.Module, channels: int = 8, first: int = 8, size: int = 8
) -> Callable[[], nn.Module]:
    """A convolution on 8x8 images, the modules in question, and a classifier."""
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)
    return lambda: nn.Sequential(nn.Conv2d(3, first, 3, padding=1), *middle, *ends)


def head(*ends: nn.Module) -> Callable[[], nn.Module]:
    """A convolution and ReLU on 8x8 images, and the classifier in question."""
    return lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), *ends)


def lenet() -> nn.Module:
    """LeNet-5 with today's activations."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES)),
    )


def recurrent(
    kind: type[Any], *, last: bool = True, features: int = 16, **keys: Any
) -> Callable[[], nn.Module]:
    """A recurrent classifier of rows of images of one channel."""
    directions = 2 if keys.get("bidirectional") else 1

    def forward(self: Any, x: Any) -> Any:
        steps = x.squeeze(1)
        if not keys.get("batch_first"):
            steps = steps.transpose(0, 1)
        y, state = self.rnn(steps)
        if not last:
            state = state[0] if isinstance(state, tuple) else state
            return self.fc(state[-1])
        return self.fc(y[:, -1] if keys.get("batch_first") else y[-1])

    return lambda: Of(
        forward, rnn=kind(28, features, **keys), fc=nn.Linear(directions * features, CLASSES)
    )


def sequence(kind: type[Any], **keys: Any) -> Callable[[], nn.Module]:
    """A recurrent classifier of sequences."""
    return lambda: Of(
        lambda self, x: self.fc(self.rnn(x)[0][:, -1]),
        rnn=kind(12, 16, batch_first=True, **keys),
        fc=nn.Linear(16, CLASSES),
    )


SMALL, GREY, WIDE = (3, 8, 8), (1, 28, 28), (3, 64, 64)

VISION: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **{
        name: (vision(name), (3, 224, 224))
        for name in ("alexnet", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn")
    },
    **{name: (vision(name), (3, 224, 224)) for name in ("vgg16", "vgg16_bn", "vgg19", "vgg19_bn")},
    **{
        name: (vision(name), WIDE)
        for name in ("resnet18", "resnet34", "resnet50", "wide_resnet50_2")
    },
    **{
        name: (vision(name), WIDE)
        for name in ("resnext50_32x4d", "densenet121", "squeezenet1_0", "squeezenet1_1")
    },
    "googlenet": (vision("googlenet", init_weights=False, aux_logits=False), WIDE),
    "inception_v3": (vision("inception_v3", init_weights=False, aux_logits=False), (3, 75, 75)),
    **{
        name: (vision(name), WIDE)
        for name in ("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large")
    },
    **{
        name: (vision(name), WIDE)
        for name in ("shufflenet_v2_x0_5", "mnasnet0_5", "mnasnet1_0", "efficientnet_b0")
    },
    **{
        name: (vision(name), WIDE)
        for name in ("efficientnet_v2_s", "regnet_x_400mf", "regnet_y_400mf")
    },
    **{name: (vision(name), WIDE) for name in ("convnext_tiny", "swin_t")},
    "vit_b_16": (vision("vit_b_16", image_size=64), WIDE),
}

OWN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, CLASSES)),
        GREY,
    ),
    "mlp-of-rows": (
        lambda: nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, CLASSES)),
        (784,),
    ),
    "mlp-batch-norm": (
        lambda: nn.Sequential(
            *(nn.Flatten(), nn.Linear(192, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3)),
            *(nn.Linear(32, 24, bias=False), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, CLASSES)),
        ),
        SMALL,
    ),
    "lenet": (lenet, GREY),
    "nhwc-input": (
        lambda: Of(lambda self, x: self.net(x.permute(0, 3, 1, 2)), net=cnn(nn.ReLU())()),
        (8, 8, 3),
    ),
    "nhwc-flatten": (
        lambda: Of(
            lambda self, x: self.fc(
                torch.relu(self.conv(x)).permute(0, 2, 3, 1).reshape(x.shape[0], -1)
            ),
            conv=nn.Conv2d(3, 8, 3),
            fc=nn.Linear(288, CLASSES),
        ),
        SMALL,
    ),
    "lstm": (recurrent(nn.LSTM, batch_first=True), GREY),
    "lstm-steps-first": (recurrent(nn.LSTM), GREY),
    "lstm-of-two-layers": (recurrent(nn.LSTM, batch_first=True, num_layers=2), GREY),
    "lstm-of-a-sequence": (sequence(nn.LSTM), (7, 12)),
    "lstm-both-ways": (recurrent(nn.LSTM, batch_first=True, bidirectional=True), GREY),
    "lstm-without-bias": (recurrent(nn.LSTM, batch_first=True, bias=False), GREY),
    "lstm-last-state": (recurrent(nn.LSTM, batch_first=True, last=False), GREY),
    "gru": (recurrent(nn.GRU, batch_first=True), GREY),
    "gru-of-two-layers": (recurrent(nn.GRU, batch_first=True, num_layers=2, dropout=0.2), GREY),
    "gru-of-a-sequence": (sequence(nn.GRU, num_layers=2), (7, 12)),
    "gru-last-state": (recurrent(nn.GRU, last=False), GREY),
    "rnn": (recurrent(nn.RNN, batch_first=True), GREY),
    "autoencoder": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 3, 2, 2), nn.Sigmoid()),
            *(nn.Flatten(), nn.Linear(192, CLASSES)),
        ),
        SMALL,
    ),
    "encoder": (
        head(nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, CLASSES)),
        SMALL,
    ),
    "unet": (
        lambda: Of(
            lambda self, x: self.end(self.both(self.down(x)).mean((2, 3))),
            down=nn.Conv2d(3, 8, 3, padding=1),
            both=Of(
                lambda self, x: torch.cat([x, self.up(self.deep(x))], 1),
                deep=nn.Conv2d(8, 8, 3, 2, 1),
                up=nn.Upsample(scale_factor=2),
            ),
            end=nn.Linear(16, CLASSES),
        ),
        SMALL,
    ),
    "concat": (
        lambda: Of(
            lambda self, x: self.end(torch.cat([self.a(x), torch.relu(self.b(x))], 1).flatten(1)),
            a=nn.Conv2d(3, 4, 3, padding=1),
            b=nn.Conv2d(3, 6, 1),
            end=nn.Linear(640, CLASSES),
        ),
        SMALL,
    ),
    "shortcut": (
        lambda: Of(
            lambda self, x: self.end(self.more(self.a(x)).mean([2, 3])),
            a=nn.Conv2d(3, 8, 3, padding=1),
            more=Of(lambda self, x: x + self.b(torch.relu(x)), b=nn.Conv2d(8, 8, 3, padding=1)),
            end=nn.Linear(8, CLASSES),
        ),
        SMALL,
    ),
    "dilated": (cnn(nn.ReLU(), nn.Conv2d(8, 8, 3, padding=2, dilation=2)), SMALL),
    "dilated-1x1": (cnn(nn.ReLU(), nn.Conv2d(8, 8, 1, dilation=3)), SMALL),
    "grouped": (cnn(nn.ReLU(), nn.Conv2d(8, 12, 3, groups=4), channels=12), SMALL),
    "depthwise": (
        cnn(nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.Conv2d(8, 8, 1)),
        SMALL,
    ),
    "clamp": (
        lambda: Of(
            lambda self, x: self.net(x).clamp(min=0) @ self.w,
            net=cnn()(),
            w=nn.Parameter(torch.randn(10, 10)),
        ),
        SMALL,
    ),
    "maximum": (
        lambda: Of(
            lambda self, x: self.fc(torch.maximum(self.net(x), torch.zeros(1))),
            net=cnn()(),
            fc=nn.Linear(10, 10),
        ),
        SMALL,
    ),
    "hardtanh": (cnn(nn.Hardtanh()), SMALL),
    "hardtanh-0-6": (cnn(nn.Hardtanh(0.0, 6.0)), SMALL),
    "relu6": (cnn(nn.ReLU6()), SMALL),
    "hardswish": (cnn(nn.Hardswish()), SMALL),
    "silu": (cnn(nn.SiLU()), SMALL),
    "leaky-relu": (cnn(nn.LeakyReLU(0.2)), SMALL),
    "prelu": (cnn(nn.PReLU()), SMALL),
    "elu": (cnn(nn.ELU()), SMALL),
    "gelu": (cnn(nn.GELU()), SMALL),
    "mish": (cnn(nn.Mish()), SMALL),
    "tanh": (cnn(nn.Tanh()), SMALL),
    "group-norm": (cnn(nn.GroupNorm(2, 8)), SMALL),
    "layer-norm": (head(nn.Flatten(), nn.LayerNorm(512), nn.Linear(512, CLASSES)), SMALL),
    "local-response": (cnn(nn.LocalResponseNorm(5)), SMALL),
    "max-pool-ceil": (cnn(nn.MaxPool2d(2, 2, ceil_mode=True)), SMALL),
    "max-pool-ceil-odd": (cnn(nn.MaxPool2d(3, 2, ceil_mode=True)), SMALL),
    "average-pool": (cnn(nn.AvgPool2d(3, 2, 1, count_include_pad=False)), SMALL),
    "max-pool-dilated": (cnn(nn.MaxPool2d(2, 1, dilation=2)), SMALL),
    "adaptive-average": (
        head(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES)),
        SMALL,
    ),
    "adaptive-average-uneven": (
        head(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, CLASSES)),
        SMALL,
    ),
    "adaptive-max": (head(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES)), SMALL),
    "adaptive-max-2": (head(nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES)), SMALL),
    "flatten-mean": (
        lambda: Of(
            lambda self, x: self.fc(self.conv(x).flatten(2).mean(2)),
            conv=nn.Conv2d(3, 8, 3),
            fc=nn.Linear(8, CLASSES),
        ),
        SMALL,
    ),
    "squeeze-twice": (
        lambda: Of(
            lambda self, x: self.fc(self.pool(self.conv(x)).squeeze(-1).squeeze(-1)),
            conv=nn.Conv2d(3, 8, 3),
            pool=nn.AdaptiveAvgPool2d(1),
            fc=nn.Linear(8, CLASSES),
        ),
        SMALL,
    ),
    "mean-twice": (
        lambda: Of(
            lambda self, x: self.fc(self.conv(x).mean(-1).mean(-1)),
            conv=nn.Conv2d(3, 8, 3),
            fc=nn.Linear(8, CLASSES),
        ),
        SMALL,
    ),
    "max-of-maps": (
        lambda: Of(
            lambda self, x: self.fc(self.conv(x).amax((2, 3))),
            conv=nn.Conv2d(3, 8, 3),
            fc=nn.Linear(8, CLASSES),
        ),
        SMALL,
    ),
    "pixel-of-one": (
        lambda: Of(
            lambda self, x: self.fc(self.pool(self.conv(x))[:, :, 0, 0]),
            conv=nn.Conv2d(3, 8, 3),
            pool=nn.AdaptiveAvgPool2d(1),
            fc=nn.Linear(8, CLASSES),
        ),
        SMALL,
    ),
    "same": (
        cnn(nn.Conv2d(8, 8, 3, padding="same"), nn.ReLU(), nn.Conv2d(8, 8, 5, padding="same")),
        SMALL,
    ),
    "same-even": (cnn(nn.Conv2d(8, 8, 4, padding="same")), SMALL),
    "zero-pad": (cnn(nn.ZeroPad2d(1), nn.Conv2d(8, 8, 3)), SMALL),
    "zero-pad-pool": (cnn(nn.ZeroPad2d(1), nn.AvgPool2d(4)), SMALL),
    "zero-pad-max": (cnn(nn.ReLU(), nn.ZeroPad2d(1), nn.MaxPool2d(3, 2)), SMALL),
    "zero-pad-uneven": (cnn(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(8, 8, 3, 2)), SMALL),
    "zero-pad-images": (
        lambda: nn.Sequential(
            nn.ZeroPad2d(2), nn.Conv2d(3, 8, 5), nn.Flatten(), nn.Linear(512, CLASSES)
        ),
        SMALL,
    ),
    "reflect": (cnn(nn.ReflectionPad2d(1), nn.Conv2d(8, 8, 3)), SMALL),
    "reflect-conv": (cnn(nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")), SMALL),
    "circular-conv": (cnn(nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular")), SMALL),
    "pixel-shuffle": (cnn(nn.PixelShuffle(2), channels=2), SMALL),
    "channel-shuffle": (cnn(nn.ChannelShuffle(2)), SMALL),
    "unflatten": (
        head(
            nn.Flatten(),
            nn.Linear(512, 32),
            nn.Unflatten(1, (2, 4, 4)),
            nn.Conv2d(2, 4, 3),
            nn.Flatten(),
            nn.Linear(16, CLASSES),
        ),
        SMALL,
    ),
    "weight-norm": (
        lambda: nn.Sequential(
            parametrizations.weight_norm(nn.Conv2d(3, 8, 3)),
            nn.ReLU(),
            nn.Flatten(),
            parametrizations.weight_norm(nn.Linear(288, CLASSES)),
        ),
        SMALL,
    ),
    "old-weight-norm": (
        lambda: nn.Sequential(
            nn.utils.weight_norm(nn.Conv2d(3, 8, 3)),
            nn.ReLU(),
            nn.Flatten(),
            nn.utils.weight_norm(nn.Linear(288, CLASSES)),
        ),
        SMALL,
    ),
    "spectral-norm": (
        lambda: nn.Sequential(
            parametrizations.spectral_norm(nn.Conv2d(3, 8, 3)),
            nn.ReLU(),
            nn.Flatten(),
            parametrizations.spectral_norm(nn.Linear(288, CLASSES)),
        ),
        SMALL,
    ),
    "tied": (tied, SMALL),
    "twice": (
        lambda: Of(
            lambda self, x: self.c(self.b(torch.relu(self.b(self.a(x.flatten(1)))))),
            a=nn.Linear(192, 48),
            b=nn.Linear(48, 48),
            c=nn.Linear(48, CLASSES),
        ),
        SMALL,
    ),
    "zero-biases": (
        lambda: zeros(
            nn.Sequential(
                nn.Conv2d(3, 8, 3),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(288, 32),
                nn.ReLU(),
                nn.Linear(32, CLASSES),
            )
        ),
        SMALL,
    ),
    "matmul": (
        lambda: Of(
            lambda self, x: torch.matmul(x.flatten(1), self.w) + self.b,
            w=nn.Parameter(torch.randn(192, CLASSES)),
            b=nn.Parameter(torch.randn(CLASSES)),
        ),
        SMALL,
    ),
    "matmul-transposed": (
        lambda: Of(
            lambda self, x: torch.relu(x.flatten(1) @ self.v.T) @ self.w.t(),
            v=nn.Parameter(torch.randn(32, 192)),
            w=nn.Parameter(torch.randn(CLASSES, 32)),
        ),
        SMALL,
    ),
    "einsum": (
        lambda: Of(
            lambda self, x: torch.einsum("bi,oi->bo", x.flatten(1), self.w),
            w=nn.Parameter(torch.randn(CLASSES, 192)),
        ),
        SMALL,
    ),
    "linear-of-steps": (
        lambda: Of(
            lambda self, x: self.fc(torch.relu(self.a(self.rnn(x.squeeze(1))[0]))[:, -1]),
            rnn=nn.GRU(28, 16, batch_first=True),
            a=nn.Linear(16, 24),
            fc=nn.Linear(24, CLASSES),
        ),
        GREY,
    ),
    "mean-of-steps": (
        lambda: Of(
            lambda self, x: self.fc(self.rnn(x.squeeze(1))[0].mean(1)),
            rnn=nn.GRU(28, 16, batch_first=True),
            fc=nn.Linear(16, CLASSES),
        ),
        GREY,
    ),
    "softmax-end": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES), nn.LogSoftmax(1)),
        SMALL,
    ),
    "log-softmax-in-forward": (
        lambda: Of(
            lambda self, x: torch.log_softmax(self.fc(x.flatten(1)), -1), fc=nn.Linear(192, CLASSES)
        ),
        SMALL,
    ),
}


def zeros(model: nn.Sequential) -> nn.Module:
    """A model whose biases begin with zeros."""
    for name, array in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(array)
    return model


MODELS = VISION | OWN

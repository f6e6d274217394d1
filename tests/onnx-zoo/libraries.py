"""Small configurations of timm's, Hugging Face's and x-transformers' own models, with random
weights.

They were chosen before any of them was tried here: families that people train, each once or twice.
Dropout is off, and so are caches of keys and values. T5 has the attention that PyTorch exports in
training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from models import CLASSES, Of
from torch import nn
from usual import STEPS, SYMBOLS

Table = dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]
TEXT, IMAGES, SMALL = (STEPS,), (3, 64, 64), (3, 32, 32)


def timm(name: str, **keys: Any) -> Callable[[], nn.Module]:
    """A model of timm by its name."""

    def make() -> nn.Module:
        import timm as library

        return library.create_model(name, num_classes=CLASSES, **keys)

    return make


def timm_class(module: str, name: str, **keys: Any) -> Callable[[], nn.Module]:
    """A model of one of timm's classes, smaller than those that have a name."""

    def make() -> nn.Module:
        import importlib

        made = getattr(importlib.import_module(f"timm.models.{module}"), name)
        return made(num_classes=CLASSES, **keys)

    return make


TIMM = {
    **{
        name: (timm(name), IMAGES)
        for name in (
            "resnet18 resnet26d resnet50 resnext50_32x4d legacy_seresnet18 regnetx_002 regnety_002"
            " mobilenetv2_050 mobilenetv3_small_050 mobilenetv3_large_100 mobilenetv4_conv_small"
            " efficientnet_b0 tf_efficientnet_b0 efficientnet_lite0 tf_efficientnetv2_b0"
            " mnasnet_small ghostnet_050 convnext_atto convnextv2_atto densenet121 dla34"
            " hrnet_w18_small repvgg_a0 res2net50_26w_4s vgg11_bn darknet53 xception41 poolformer_s12"
        ).split()
    },
    **{
        name: (timm(name, img_size=64), IMAGES)
        for name in (
            "vit_tiny_patch16_224 deit_tiny_patch16_224 deit_tiny_distilled_patch16_224"
            " mixer_s32_224 resmlp_12_224 gmlp_ti16_224"
        ).split()
    },
    "convmixer": (
        timm_class("convmixer", "ConvMixer", dim=48, depth=4, kernel_size=5, patch_size=4),
        SMALL,
    ),
    "vit_dinov2": (
        timm_class(
            "vision_transformer",
            "VisionTransformer",
            img_size=32,
            patch_size=8,
            embed_dim=48,
            depth=2,
            num_heads=3,
            init_values=1e-5,
        ),
        SMALL,
    ),
    "vit_mean": (
        timm_class(
            "vision_transformer",
            "VisionTransformer",
            img_size=32,
            patch_size=8,
            embed_dim=48,
            depth=2,
            num_heads=3,
            class_token=False,
            global_pool="avg",
        ),
        SMALL,
    ),
    "swin": (
        timm_class(
            "swin_transformer",
            "SwinTransformer",
            img_size=32,
            patch_size=2,
            embed_dim=24,
            depths=(2, 2),
            num_heads=(2, 4),
            window_size=4,
        ),
        SMALL,
    ),
}

_HEADS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_LLAMA = _HEADS | {"intermediate_size": 96, "max_position_embeddings": 32, "use_cache": False}
_LLAMA |= {"vocab_size": SYMBOLS, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}
_GPT2 = {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": SYMBOLS}
_GPT2 |= {"use_cache": False, "bos_token_id": 1, "eos_token_id": 2}
_BERT = _HEADS | {"intermediate_size": 96, "max_position_embeddings": 32, "vocab_size": SYMBOLS}
_VIT = _HEADS | {"intermediate_size": 96, "image_size": 32, "patch_size": 8, "num_labels": CLASSES}
_NO_DROPOUT = {
    key: 0.0
    for key in (
        "dropout hidden_dropout attention_dropout activation_dropout hidden_dropout_prob"
        " attention_probs_dropout_prob resid_pdrop embd_pdrop attn_pdrop embed_dropout resid_dropout"
        " classifier_dropout seq_classif_dropout classifier_dropout_prob summary_last_dropout"
        " drop_path_rate dropout_rate"
    ).split()
}


def hugging_face(model: str, config: str, **keys: Any) -> Callable[[], nn.Module]:
    """A model of Hugging Face's transformers, with a configuration of its own."""

    def make() -> nn.Module:
        import transformers

        configuration = getattr(transformers, config)
        own = {key: value for key, value in _NO_DROPOUT.items() if _has(configuration, key)}
        return getattr(transformers, model)(configuration(**own, **keys))

    return make


def _has(configuration: Any, key: str) -> bool:
    return hasattr(configuration(), key)


def of_both(model: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """An encoder and a decoder that take the same symbols."""
    return lambda: Of(
        lambda self, ids: self.model(input_ids=ids, decoder_input_ids=ids).logits, model=model()
    )


_ENCODERS = {
    "bert-classifier": ("BertForSequenceClassification", "BertConfig"),
    "bert-masked": ("BertForMaskedLM", "BertConfig"),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig"),
    "xlm-roberta": ("XLMRobertaForSequenceClassification", "XLMRobertaConfig"),
    "electra": ("ElectraForSequenceClassification", "ElectraConfig"),
    "mpnet": ("MPNetForSequenceClassification", "MPNetConfig"),
}
_CAUSAL = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {"num_key_value_heads": 2}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"num_key_value_heads": 2}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"num_key_value_heads": 2, "head_dim": 16}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {"num_key_value_heads": 1, "head_dim": 16}),
    "phi": ("PhiForCausalLM", "PhiConfig", {}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {}),
    "olmo": ("OlmoForCausalLM", "OlmoConfig", {}),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", {"num_key_value_heads": 4}),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {}),
    "mixtral": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {"num_key_value_heads": 2, "num_local_experts": 2},
    ),
}
TRANSFORMERS: Table = {
    "gpt2": (hugging_face("GPT2LMHeadModel", "GPT2Config", **_GPT2), TEXT),
    "gptj": (hugging_face("GPTJForCausalLM", "GPTJConfig", rotary_dim=8, **_GPT2), TEXT),
    "gpt-neo": (
        hugging_face(
            "GPTNeoForCausalLM",
            "GPTNeoConfig",
            vocab_size=SYMBOLS,
            hidden_size=48,
            num_layers=2,
            num_heads=4,
            attention_types=[[["global", "local"], 1]],
            max_position_embeddings=32,
            use_cache=False,
            bos_token_id=1,
            eos_token_id=2,
        ),
        TEXT,
    ),
    **{
        name: (hugging_face(model, config, **_LLAMA, **keys), TEXT)
        for name, (model, config, keys) in _CAUSAL.items()
    },
    "opt": (
        hugging_face(
            "OPTForCausalLM",
            "OPTConfig",
            vocab_size=SYMBOLS,
            hidden_size=48,
            num_hidden_layers=2,
            ffn_dim=96,
            num_attention_heads=4,
            max_position_embeddings=32,
            word_embed_proj_dim=48,
            use_cache=False,
        ),
        TEXT,
    ),
    "bloom": (
        hugging_face(
            "BloomForCausalLM",
            "BloomConfig",
            vocab_size=SYMBOLS,
            hidden_size=48,
            n_layer=2,
            n_head=4,
            use_cache=False,
            bos_token_id=1,
            eos_token_id=2,
        ),
        TEXT,
    ),
    **{
        name: (hugging_face(model, config, **_BERT, num_labels=CLASSES), TEXT)
        for name, (model, config) in _ENCODERS.items()
    },
    "albert": (
        hugging_face(
            "AlbertForSequenceClassification",
            "AlbertConfig",
            **_BERT,
            embedding_size=24,
            num_labels=CLASSES,
        ),
        TEXT,
    ),
    "distilbert": (
        hugging_face(
            "DistilBertForSequenceClassification",
            "DistilBertConfig",
            vocab_size=SYMBOLS,
            dim=48,
            n_layers=2,
            n_heads=4,
            hidden_dim=96,
            max_position_embeddings=32,
            num_labels=CLASSES,
        ),
        TEXT,
    ),
    "vit": (hugging_face("ViTForImageClassification", "ViTConfig", **_VIT), SMALL),
    "deit": (hugging_face("DeiTForImageClassification", "DeiTConfig", **_VIT), SMALL),
    "beit": (hugging_face("BeitForImageClassification", "BeitConfig", **_VIT), SMALL),
    "dinov2": (
        hugging_face(
            "Dinov2ForImageClassification",
            "Dinov2Config",
            **_HEADS,
            image_size=32,
            patch_size=8,
            num_labels=CLASSES,
        ),
        SMALL,
    ),
    "resnet": (
        hugging_face(
            "ResNetForImageClassification",
            "ResNetConfig",
            embedding_size=16,
            hidden_sizes=[16, 32],
            depths=[2, 2],
            layer_type="basic",
            num_labels=CLASSES,
        ),
        SMALL,
    ),
    "convnext": (
        hugging_face(
            "ConvNextForImageClassification",
            "ConvNextConfig",
            hidden_sizes=[16, 32],
            depths=[2, 2],
            num_stages=2,
            num_labels=CLASSES,
        ),
        SMALL,
    ),
    "t5": (
        of_both(
            hugging_face(
                "T5ForConditionalGeneration",
                "T5Config",
                vocab_size=SYMBOLS,
                d_model=48,
                d_kv=12,
                d_ff=96,
                num_layers=2,
                num_heads=4,
                use_cache=False,
                decoder_start_token_id=0,
                attn_implementation="eager",
            )
        ),
        TEXT,
    ),
    "bart": (
        of_both(
            hugging_face(
                "BartForConditionalGeneration",
                "BartConfig",
                vocab_size=SYMBOLS,
                d_model=48,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=96,
                decoder_ffn_dim=96,
                max_position_embeddings=32,
                use_cache=False,
            )
        ),
        TEXT,
    ),
}


def x_transformer(layers: str = "Decoder", *, whole: bool = True, **keys: Any) -> Any:
    """A transformer of x-transformers over symbols; keys of `whole` are those of its wrapper."""

    def make() -> nn.Module:
        import x_transformers as library

        wrapper = {name: keys[name] for name in _OF_WRAPPER if name in keys}
        own = {name: value for name, value in keys.items() if name not in _OF_WRAPPER}
        attention = getattr(library, layers)(dim=48, depth=2, heads=4, attn_dim_head=12, **own)
        return library.TransformerWrapper(
            num_tokens=SYMBOLS, max_seq_len=STEPS, attn_layers=attention, **wrapper
        )

    return make


_OF_WRAPPER = ("tie_embedding", "use_abs_pos_emb", "post_emb_norm", "scaled_sinu_pos_emb")
_NO_PLACES = {"use_abs_pos_emb": False}
X_TRANSFORMERS: Table = {
    name: (x_transformer(**keys), TEXT)
    for name, keys in {
        "decoder": {},
        "decoder-flash": {"attn_flash": True},
        "decoder-tied": {"tie_embedding": True},
        "decoder-rotary": {"rotary_pos_emb": True, **_NO_PLACES},
        "decoder-llama": {
            "use_rmsnorm": True,
            "rotary_pos_emb": True,
            "ff_glu": True,
            "ff_swish": True,
            "ff_no_bias": True,
            **_NO_PLACES,
        },
        "decoder-gqa": {"attn_kv_heads": 2, "attn_flash": True},
        "decoder-one-kv": {"attn_one_kv_head": True},
        "decoder-alibi": {"alibi_pos_bias": True, **_NO_PLACES},
        "decoder-t5": {"rel_pos_bias": True, **_NO_PLACES},
        "decoder-qk-norm": {"attn_qk_norm": True},
        "decoder-relu-squared": {"ff_relu_squared": True},
        "decoder-sinusoidal": {"scaled_sinu_pos_emb": True, "use_abs_pos_emb": True},
        "encoder": {"layers": "Encoder"},
        "encoder-post-norm": {"layers": "Encoder", "pre_norm": False},
        "encoder-geglu": {"layers": "Encoder", "ff_glu": True},
    }.items()
}


def x_vision() -> nn.Module:
    """A vision transformer of x-transformers."""
    import x_transformers as library

    return library.ViTransformerWrapper(
        image_size=32,
        patch_size=8,
        num_classes=CLASSES,
        attn_layers=library.Encoder(dim=48, depth=2, heads=4, attn_dim_head=12),
    )


LIBRARIES: dict[str, Table] = {
    "timm": TIMM,
    "transformers": TRANSFORMERS,
    "x_transformers": {**X_TRANSFORMERS, "vit": (x_vision, SMALL)},
}
"""Models by the package that has them, and by name."""

import csv
import json
import math
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab.models import SUPPORTED_MODEL_TYPES, Block, ConfigError, ModelShape, Weight

SAMPLES = Path(__file__).parents[2] / "distgen_lab" / "data" / "samples"
INPUTS = Path(__file__).parents[3] / "shared" / "inputs"

# ---------------------------------------------------------------------------------------- published models


def llama(hidden, layers, heads, inner, vocab, kv=None, kind="llama", **more):
    """The keys that llama-like families share."""
    config = {
        "model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": inner, "vocab_size": vocab, "num_key_value_heads": kv,
    }  # fmt: skip
    return {key: value for key, value in config.items() if value is not None} | more


def gpt2(hidden, layers, heads, vocab=50257, positions=1024):
    return {
        "model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads, "vocab_size": vocab,
        "n_positions": positions,
    }  # fmt: skip


def opt(hidden, layers, heads, **more):
    ffn = {"ffn_dim": 4 * hidden, "max_position_embeddings": 2048}
    return llama(hidden, layers, heads, None, 50272, kind="opt", **ffn, **more)


def bert(hidden, layers, heads, vocab=30522, kind="bert", positions=512, types=2, **more):
    more |= {"max_position_embeddings": positions, "type_vocab_size": types}
    return llama(hidden, layers, heads, 4 * hidden, vocab, kind=kind, **more)


def t5(width, inner, layers, heads, kind="t5", vocab=32128, **more):
    sizes = {"d_model": width, "d_ff": inner, "d_kv": 64, "num_layers": layers, "num_heads": heads}
    return {"model_type": kind, "vocab_size": vocab, **sizes, **more}


def bloom(hidden, layers, heads):
    sizes = {"n_embed": hidden, "n_layer": layers, "num_attention_heads": heads}
    return {"model_type": "bloom", "vocab_size": 250880} | sizes


V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
MOE_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "vocab_size": 129280,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
}  # fmt: skip
QWEN3_30B = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "head_dim": 128}
QWEN15_MOE = {
    "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
}  # fmt: skip
EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2}
TIED = {"tie_word_embeddings": True}
FALCON_40B = {"new_decoder_architecture": True, "num_kv_heads": 8}

PUBLISHED = {
    "gpt2": (124_439_808, gpt2(768, 12, 12)),
    "gpt2-medium": (354_823_168, gpt2(1024, 24, 16)),
    "gpt2-large": (774_030_080, gpt2(1280, 36, 20)),
    "gpt2-xl": (1_557_611_200, gpt2(1600, 48, 25)),
    "bert-base": (109_482_240, bert(768, 12, 12)),
    "bert-large": (335_141_888, bert(1024, 24, 16)),
    "bert-base masked LM": (109_514_298, bert(768, 12, 12, architectures=["BertForMaskedLM"])),
    "bert-base pre-training": (110_106_428, bert(768, 12, 12, architectures=["BertForPreTraining"])),
    "roberta-base": (124_645_632, bert(768, 12, 12, 50265, "roberta", 514, 1)),
    "roberta-large masked LM": (
        355_412_057,
        bert(1024, 24, 16, 50265, "roberta", 514, 1, architectures=["RobertaForMaskedLM"]),
    ),
    "xlm-roberta-base": (278_043_648, bert(768, 12, 12, 250002, "xlm-roberta", 514, 1)),
    "llama-7b": (6_738_415_616, llama(4096, 32, 32, 11008, 32000)),
    "llama-2-13b": (13_015_864_320, llama(5120, 40, 40, 13824, 32000)),
    "llama-2-70b": (68_976_648_192, llama(8192, 80, 64, 28672, 32000, 8)),
    "llama-3-8b": (8_030_261_248, llama(4096, 32, 32, 14336, 128256, 8)),
    "llama-3-70b": (70_553_706_496, llama(8192, 80, 64, 28672, 128256, 8)),
    "llama-3.1-405b": (405_853_388_800, llama(16384, 126, 128, 53248, 128256, 8)),
    "llama-3.2-1b": (1_235_814_400, llama(2048, 16, 32, 8192, 128256, 8, head_dim=64, **TIED)),
    "llama-3.2-3b": (3_212_749_824, llama(3072, 28, 24, 8192, 128256, 8, head_dim=128, **TIED)),
    "tinyllama-1.1b": (1_100_048_384, llama(2048, 22, 32, 5632, 32000, 4)),
    "mistral-7b": (7_241_732_096, llama(4096, 32, 32, 14336, 32000, 8, "mistral")),
    "mistral-nemo-12b": (12_247_782_400, llama(5120, 40, 32, 14336, 131072, 8, "mistral", head_dim=128)),
    "mixtral-8x7b": (46_702_792_704, llama(4096, 32, 32, 14336, 32000, 8, "mixtral", **EXPERTS)),
    "mixtral-8x22b": (140_630_071_296, llama(6144, 56, 48, 16384, 32768, 8, "mixtral", **EXPERTS)),
    "qwen2.5-0.5b": (494_032_768, llama(896, 24, 14, 4864, 151936, 2, "qwen2", **TIED)),
    "qwen2.5-1.5b": (1_543_714_304, llama(1536, 28, 12, 8960, 151936, 2, "qwen2", **TIED)),
    "qwen2.5-7b": (7_615_616_512, llama(3584, 28, 28, 18944, 152064, 4, "qwen2")),
    "qwen2.5-72b": (72_706_203_648, llama(8192, 80, 64, 29568, 152064, 8, "qwen2")),
    "qwen1.5-moe-a2.7b": (14_315_784_192, llama(2048, 24, 16, 5632, 151936, 16, "qwen2_moe", **QWEN15_MOE)),
    "qwen3-0.6b": (596_049_920, llama(1024, 28, 16, 3072, 151936, 8, "qwen3", head_dim=128, **TIED)),
    "qwen3-8b": (8_190_735_360, llama(4096, 36, 32, 12288, 151936, 8, "qwen3", head_dim=128)),
    "qwen3-30b-a3b": (30_532_122_624, llama(2048, 48, 32, 6144, 151936, 4, "qwen3_moe", **QWEN3_30B)),
    "deepseek-v3": (671_026_404_352, MOE_V3),
    "gemma-2b": (2_506_172_416, llama(2048, 18, 8, 16384, 256000, 1, "gemma", head_dim=256)),
    "gemma-7b": (8_537_680_896, llama(3072, 28, 16, 24576, 256000, 16, "gemma", head_dim=256)),
    "gemma-2-2b": (2_614_341_888, llama(2304, 26, 8, 9216, 256000, 4, "gemma2", head_dim=256)),
    "gemma-2-9b": (9_241_705_984, llama(3584, 42, 16, 14336, 256000, 8, "gemma2", head_dim=256)),
    "gemma-2-27b": (27_227_128_320, llama(4608, 46, 32, 36864, 256000, 16, "gemma2", head_dim=128)),
    "gemma-3-1b": (999_885_952, llama(1152, 26, 4, 6912, 262144, 1, "gemma3_text", head_dim=256)),
    "phi-1.5": (1_418_270_720, llama(2048, 24, 32, 8192, 51200, kind="phi")),
    "phi-2": (2_779_683_840, llama(2560, 32, 32, 10240, 51200, 32, "phi")),
    "phi-3-mini": (3_821_079_552, llama(3072, 32, 32, 8192, 32064, 32, "phi3")),
    "phi-3-medium": (13_960_238_080, llama(5120, 40, 40, 17920, 32064, 10, "phi3")),
    "phi-4": (14_659_507_200, llama(5120, 40, 40, 17920, 100352, 10, "phi3")),
    "falcon-7b": (6_921_720_704, llama(4544, 32, 71, None, 65024, kind="falcon")),
    "falcon-40b": (41_303_293_952, llama(8192, 60, 128, None, 65024, kind="falcon", **FALCON_40B)),
    "bloom-560m": (559_214_592, bloom(1024, 24, 16)),
    "bloom": (176_247_271_424, bloom(14336, 70, 112)),
    "opt-125m": (125_239_296, opt(768, 12, 12)),
    "opt-350m": (331_196_416, opt(1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False)),
    "opt-1.3b": (1_315_758_080, opt(2048, 24, 32)),
    "opt-6.7b": (6_658_473_984, opt(4096, 32, 32)),
    "pythia-160m": (162_322_944, llama(768, 12, 12, 3072, 50304, kind="gpt_neox")),
    "pythia-12b": (11_846_072_320, llama(5120, 36, 40, 20480, 50688, kind="gpt_neox")),
    "gpt-neox-20b": (20_554_567_680, llama(6144, 44, 64, 24576, 50432, kind="gpt_neox")),
    "gpt-j-6b": (6_050_882_784, gpt2(4096, 28, 16, 50400, 2048) | {"model_type": "gptj"}),
    "t5-small": (60_506_624, t5(512, 2048, 6, 8)),
    "t5-base": (222_903_552, t5(768, 3072, 12, 12)),
    "t5-large": (737_668_096, t5(1024, 4096, 24, 16)),
    "t5-v1.1-base": (247_577_856, t5(768, 2048, 12, 12, **V1_1)),
    "t5-v1.1-xxl": (11_135_332_352, t5(4096, 10240, 24, 64, **V1_1)),
    "mt5-small": (300_176_768, t5(512, 1024, 8, 6, "mt5", 250112, **V1_1)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameters(name):
    published, config = PUBLISHED[name]
    assert ModelShape.from_config(config).parameters == published


def test_published_cache_sizes_and_active_parameters():
    deepseek = ModelShape.from_config(MOE_V3)
    assert (deepseek.kv_heads, deepseek.kv_bytes_per_token()) == (None, 70272)
    assert deepseek.active_parameters == 37_552_282_624
    mixtral = ModelShape.from_config(PUBLISHED["mixtral-8x7b"][1])
    assert (mixtral.active_parameters, mixtral.kv_bytes_per_token()) == (12_879_925_248, 131072)
    assert ModelShape.from_config(PUBLISHED["falcon-7b"][1]).kv_bytes_per_token() == 2 * 32 * 64 * 2
    assert ModelShape.from_config(PUBLISHED["bert-large"][1]).kv_bytes_per_token() == 0
    assert ModelShape.from_config(PUBLISHED["llama-3-70b"][1]).kv_cache_bytes(8192, 16) == 16 * 8192 * 327680


def test_matmul_parameters_leave_out_lookups_and_count_a_tied_head():
    shape = ModelShape.from_config(PUBLISHED["gpt2"][1])
    # 12 layers of 12 h^2, and the head that shares the embedding's memory
    assert shape.matmul_parameters == 12 * 12 * 768**2 + 50257 * 768
    assert shape.tied and "head (tied)" in repr(shape.table())


# ---------------------------------------------------------------------------------------- the independent reference

# Keys of a small config of each family; a list holds values of which one is drawn. Widths are odd on purpose.
COMMON = {
    "vocab_size": [97, 101], "hidden_size": [48, 96], "num_hidden_layers": [1, 3], "num_attention_heads": [4, 6],
    "intermediate_size": [37, 64], "max_position_embeddings": 40, "tie_word_embeddings": [True, False],
}  # fmt: skip
GROUPED = COMMON | {"num_key_value_heads": [1, 2]}
WITH_HEAD_DIM = GROUPED | {"head_dim": [8, 10]}
BIASED = {"attention_bias": [True, False]}
GPT = {
    "vocab_size": [97, 101], "n_embd": [48, 96], "n_layer": [1, 3], "n_head": [4, 6], "n_inner": [None, 50],
    "n_positions": [40, 33], "tie_word_embeddings": [True, False],
}  # fmt: skip
TOP = {"num_experts_per_tok": [1, 2]}
SPARSE = {"num_experts": [4, 5], "moe_intermediate_size": [20, 24], "decoder_sparse_step": [1, 2], **TOP}
LATENT = COMMON | BIASED | TOP | {
    "q_lora_rank": [None, 24], "kv_lora_rank": [16, 18], "qk_rope_head_dim": [8, 4], "qk_nope_head_dim": [8, 12],
    "v_head_dim": [8, 10], "n_routed_experts": [4, 8], "n_shared_experts": [1, 2], "moe_intermediate_size": [20, 22],
    "first_k_dense_replace": [0, 1, 2], "num_key_value_heads": 4, "num_attention_heads": 4, "n_group": 1,
    "topk_group": 1,
}  # fmt: skip
T5_SMALL = {
    "vocab_size": [97, 101], "d_model": [48, 40], "d_kv": [8, 10], "d_ff": [37, 64], "num_layers": [1, 3],
    "num_decoder_layers": [None, 2], "num_heads": [4, 6], "relative_attention_num_buckets": [8, 12],
    "feed_forward_proj": ["relu", "gated-gelu", "gated-silu"], "tie_word_embeddings": True,
}  # fmt: skip
BERT_SMALL = COMMON | {"type_vocab_size": [1, 2]}
SMALL = {
    "GPT2LMHeadModel": ("gpt2", GPT),
    "GPT2Model": ("gpt2", GPT),
    "GPTBigCodeForCausalLM": ("gpt_bigcode", GPT | {"multi_query": [True, False]}),
    "BertModel": ("bert", BERT_SMALL),
    "BertForMaskedLM": ("bert", BERT_SMALL),
    "BertLMHeadModel": ("bert", BERT_SMALL | {"is_decoder": True}),
    "BertForPreTraining": ("bert", BERT_SMALL),
    "RobertaModel": ("roberta", BERT_SMALL),
    "RobertaForMaskedLM": ("roberta", BERT_SMALL),
    "XLMRobertaForMaskedLM": ("xlm-roberta", BERT_SMALL),
    "LlamaForCausalLM": ("llama", WITH_HEAD_DIM | BIASED | {"mlp_bias": [True, False]}),
    "LlamaModel": ("llama", GROUPED),
    "MistralForCausalLM": ("mistral", WITH_HEAD_DIM),
    "MixtralForCausalLM": ("mixtral", GROUPED | TOP | {"num_local_experts": [3, 4]}),
    "Qwen2ForCausalLM": ("qwen2", GROUPED),
    "Qwen2MoeForCausalLM": (
        "qwen2_moe",
        GROUPED | SPARSE | {"shared_expert_intermediate_size": [30], "qkv_bias": [True, False],
                            "mlp_only_layers": [[], [0]]},
    ),
    "Qwen3ForCausalLM": ("qwen3", WITH_HEAD_DIM | BIASED),
    "Qwen3MoeForCausalLM": ("qwen3_moe", WITH_HEAD_DIM | BIASED | SPARSE | {"mlp_only_layers": [[], [1]]}),
    "DeepseekV2ForCausalLM": ("deepseek_v2", LATENT | {"mlp_bias": [True, False]}),
    "DeepseekV3ForCausalLM": ("deepseek_v3", LATENT),
    "GemmaForCausalLM": ("gemma", WITH_HEAD_DIM | BIASED),
    "Gemma2ForCausalLM": ("gemma2", WITH_HEAD_DIM | BIASED),
    "Gemma3ForCausalLM": ("gemma3_text", WITH_HEAD_DIM | BIASED),
    "PhiForCausalLM": ("phi", GROUPED | {"qk_layernorm": [True, False]}),
    "Phi3ForCausalLM": ("phi3", GROUPED | {"pad_token_id": 0}),
    "FalconForCausalLM": (
        "falcon",
        COMMON | {"multi_query": [True, False], "new_decoder_architecture": [True, False], "num_kv_heads": [None, 2],
                  "parallel_attn": [True, False], "bias": [True, False], "num_ln_in_parallel_attn": [None, 1, 2],
                  "ffn_hidden_size": [None, 50]},
    ),
    "BloomForCausalLM": (
        "bloom",
        {"vocab_size": 97, "hidden_size": [48, 96], "n_layer": [1, 3], "n_head": [4, 6],
         "tie_word_embeddings": [True, False]},
    ),
    "OPTForCausalLM": (
        "opt",
        COMMON | {"ffn_dim": [37, 64], "word_embed_proj_dim": [None, 24], "do_layer_norm_before": [True, False],
                  "enable_bias": [True, False], "_remove_final_layer_norm": [True, False]},
    ),
    "GPTNeoXForCausalLM": ("gpt_neox", COMMON | BIASED),
    "GPTNeoForCausalLM": (
        "gpt_neo",
        {"vocab_size": 97, "hidden_size": [48, 96], "num_layers": 2, "num_heads": [4, 6],
         "intermediate_size": [None, 50],
         "max_position_embeddings": [40, 33], "attention_types": [[[["global", "local"], 1]]]},
    ),
    "GPTJForCausalLM": ("gptj", GPT | {"rotary_dim": 4}),
    "T5ForConditionalGeneration": ("t5", T5_SMALL),
    "T5Model": ("t5", T5_SMALL),
    "MT5ForConditionalGeneration": ("mt5", T5_SMALL),
    "GptOssForCausalLM": ("gpt_oss", WITH_HEAD_DIM | BIASED | TOP | {"num_local_experts": [3, 4]}),
    "Llama4ForCausalLM": (
        "llama4_text",
        WITH_HEAD_DIM | BIASED | {"num_local_experts": [3, 4], "num_experts_per_tok": 1, "intermediate_size_mlp": [50],
                                  "interleave_moe_layer_step": [1, 2], "moe_layers": [None, [0]]},
    ),
}  # fmt: skip


def drawn(architecture, seed):
    """A small config of a family: every list replaced by one of its values."""
    kind, options = SMALL[architecture]
    rng = random.Random(f"{architecture} {seed}")
    values = {key: rng.choice(value) if isinstance(value, list) else value for key, value in options.items()}
    values = {key: value for key, value in values.items() if value is not None or key == "q_lora_rank"}
    return {"model_type": kind, "architectures": [architecture]} | values


def reference_parameters(config):
    """Distinct parameters of the transformers model, built without memory."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    known = {key: value for key, value in config.items() if key != "architectures"}
    settings_of_kind = transformers.AutoConfig.for_model(known.pop("model_type"), **known)
    with torch.device("meta"):
        model = getattr(transformers, config["architectures"][0])(settings_of_kind)
    return sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())


@pytest.mark.parametrize("architecture", SMALL)
def test_equal_to_transformers(architecture):
    for seed in range(6):
        config = drawn(architecture, seed)
        assert ModelShape.from_config(config).parameters == reference_parameters(config), config


# Class defaults matter where a multimodal config leaves out the keys of its text model.
DEFAULTED = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
    "phi": "PhiForCausalLM", "phi3": "Phi3ForCausalLM", "opt": "OPTForCausalLM", "gpt2": "GPT2LMHeadModel",
    "gpt_neox": "GPTNeoXForCausalLM", "gptj": "GPTJForCausalLM", "gpt_oss": "GptOssForCausalLM",
    "falcon": "FalconForCausalLM", "t5": "T5ForConditionalGeneration", "llama4_text": "Llama4ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "gpt_neo": "GPTNeoForCausalLM",
}  # fmt: skip


@pytest.mark.parametrize("kind", DEFAULTED)
def test_class_defaults_of_a_nested_text_model(kind):
    shape = ModelShape.from_config({"model_type": "some_vlm", "text_config": {"model_type": kind}})
    assert shape.parameters == reference_parameters({"model_type": kind, "architectures": [DEFAULTED[kind]]})
    assert any(key.startswith("text_config.") for key in shape.assumed)


# ---------------------------------------------------------------------------------------- real files

# What the message about each broken file must name.
BAD_WORDS = {
    "01-hf-truncated.json": ["line 17", "ends early"],
    "04-hf-safetensors.json": ["binary"],
    "05-hf-negative-layers.json": ["line 17", "num_hidden_layers", "-32"],
    "06-hf-huge.json": ["line 10", "hidden_size", "4.10e30"],
    "07-hf-dup-key.json": ["line 11", "hidden_size", "twice"],
    "08-hf-heads-do-not-divide.json": ["num_attention_heads", "33", "hidden_size 4096", "head_dim is absent"],
    "09-hf-kv-do-not-divide.json": ["num_key_value_heads", "5", "num_attention_heads 32"],
    "10-hf-string-number.json": ["hidden_size", '"4096"', "a string"],
    "11-hf-float-layers.json": ["num_hidden_layers", "32.5"],
    "13-hf-comment-comma.json": ["line 33", "not valid JSON"],
    "15-hf-latin1.json": ["line 2", "byte offset 25", "UTF-8"],
    "17-hf-template.json": ["line 9", "CONFIG_HIDDEN_SIZE"],
    "18-hf-list.json": ["a list", "an object"],
    "20-hf-topk-over-experts.json": ["num_experts_per_tok", "16", "num_local_experts 8"],
    "21-hf-html.json": ["line 1", "HTML"],
    "22-hf-zero-vocab.json": ["vocab_size", "0"],
}
REFUSED = {"nemotron_h", "nemotron-nas", "chatglm"}  # right values or a refusal that names the model_type


def manifest(kind):
    path = INPUTS / "manifest.csv"
    if not path.exists():
        return [pytest.param(None, None, marks=pytest.mark.skip(reason=f"no real files at {INPUTS}"))]
    with path.open(newline="") as file:
        rows = [(row["file"], json.loads(row["expected"])) for row in csv.DictReader(file) if row["kind"] == kind]
    return [row for row in rows if row[1].get("reader", "hf_config") == "hf_config"]


@pytest.mark.parametrize(("name", "expected"), manifest("hf_config"))
def test_real_config(name, expected):
    must = expected["must"]
    try:
        shape = ModelShape.from_config(INPUTS / name)
    except ConfigError as error:
        assert must != "values", error
        named = {"missing"} if must == "refuse" else REFUSED
        assert "model_type is " in str(error) and any(word in str(error) for word in named)
        return
    assert shape.parameters == expected["total_params"]
    assert shape.kv_bytes_per_token() == expected["kv_bytes_per_token_bf16"]
    assert shape.active_parameters == expected.get("active_params", shape.parameters)
    assert (shape.hidden, shape.heads, shape.vocab) == tuple(expected[key] for key in ("hidden", "heads", "vocab"))
    assert (shape.tied, shape.head_dim) == (expected["tied"], expected.get("head_dim", shape.head_dim))


@pytest.mark.parametrize(("name", "expected"), manifest("bad"))
def test_broken_file(name, expected):
    with pytest.raises(ConfigError) as error:
        ModelShape.from_config(INPUTS / name)
    words = [Path(name).name, *BAD_WORDS.get(Path(name).name, [])]
    assert [word for word in words if word not in str(error.value)] == []


# ---------------------------------------------------------------------------------------- handmade bad input

GOOD = llama(4096, 32, 32, 11008, 32000, 8, max_position_embeddings=4096)
MIXED = PUBLISHED["mixtral-8x7b"][1]
NESTED = {"model_type": "llava", "text_config": dict(GOOD)}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def says(config, *words):
    """The config is refused in one sentence that holds all the words."""
    with pytest.raises(ConfigError) as error:
        ModelShape.from_config(config)
    message = str(error.value)
    assert [word for word in words if word not in message] == [], message
    assert message.endswith(".") and "\n" not in message
    return message


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (GOOD | {"hidden_size": True}, ["hidden_size is true", "whole number"]),
        (GOOD | {"hidden_size": 4096.0}, ["hidden_size is 4096.0", "whole number"]),
        (GOOD | {"hidden_size": math.inf}, ["hidden_size is Infinity"]),
        (GOOD | {"hidden_size": [4096]}, ["hidden_size is a list"]),
        (GOOD | {"hidden_size": 2**31 + 1}, ["hidden_size is 2147483649", "2147483648"]),
        (GOOD | {"hidden_size": 10**5000}, ["hidden_size is about 1.00e5000"]),
        (GOOD | {"num_hidden_layers": 10**6}, ["num_hidden_layers is 1000000", "100000"]),
        (GOOD | {"num_attention_heads": 0}, ["num_attention_heads is 0"]),
        (GOOD | {"num_key_value_heads": 64}, ["num_key_value_heads is 64", "num_attention_heads 32"]),
        (GOOD | {"tie_word_embeddings": "yes"}, ["tie_word_embeddings", '"yes"', "true or false"]),
        (GOOD | {"attention_bias": 1}, ["attention_bias is 1", "true or false"]),
        (GOOD | {"rope_scaling": {"factors": [1.0, math.nan]}}, ["rope_scaling.factors[1] is NaN"]),
        (without(GOOD, "hidden_size"), ["hidden_size is missing"]),
        (GOOD | {"vocab_size": None}, ["vocab_size is null"]),
        (without(GOOD, "model_type"), ["model_type is missing", "supported", "llama"]),
        (GOOD | {"model_type": 7}, ["model_type is 7", "a text"]),
        (GOOD | {"model_type": "lama"}, ['"lama"', "nearest name: llama"]),
        (GOOD | {"model_type": "mamba"}, ['model_type is "mamba"', "not supported"]),
        (GOOD | {"architectures": ["LlamaForSequenceClassification"]}, ["architectures", "ForCausalLM"]),
        (GOOD | {"architectures": ["LlamaForCausalLMEagle"]}, ["architectures", "LlamaForCausalLMEagle"]),
        (GOOD | {"architectures": ["MixtralForCausalLM"]}, ["architectures", "MixtralForCausalLM"]),
        (GOOD | {"architectures": "LlamaForCausalLM"}, ["architectures", "a list"]),
        (t5(512, 2048, 6, 8, architectures=["T5EncoderModel"]), ["T5EncoderModel"]),
        (t5(512, 2048, 6, 8, feed_forward_proj="a-b"), ["feed_forward_proj", '"a-b"']),
        (t5(512, 1024, 8, 6, "mt5"), ["tie_word_embeddings is missing"]),
        (MIXED | {"num_experts_per_tok": 9}, ["num_experts_per_tok is 9", "num_local_experts 8"]),
        (without(MIXED, "num_local_experts"), ["num_local_experts"]),
        (MOE_V3 | {"moe_layer_freq": 2}, ["moe_layer_freq is 2", "only 1"]),
        (PUBLISHED["gpt2"][1] | {"hidden_size": 1024}, ["hidden_size is 1024 but n_embd is 768"]),
        (PUBLISHED["gpt2"][1] | {"n_head": 7}, ["n_head is 7", "n_embd 768"]),
        (without(PUBLISHED["gpt2"][1], "n_positions"), ["n_positions is missing"]),
        (bert(768, 12, 12, add_cross_attention=True), ["add_cross_attention is true"]),
        (NESTED | {"text_config": GOOD | {"hidden_size": -1}}, ["text_config.hidden_size is -1"]),
        (NESTED | {"text_config": [1]}, ["text_config is a list"]),
        (NESTED | {"model_type": "x", "text_config": {"hidden_size": 1}}, ["text_config.model_type is missing"]),
        (NESTED | {"text_config": {"model_type": "mamba"}}, ['text_config.model_type is "mamba"']),
        (NESTED | {"architectures": ["LlavaForSequenceClassification"]}, ["architectures"]),
        (
            {"model_type": "llava", "tie_word_embeddings": True, "text_config": GOOD | {"tie_word_embeddings": False}},
            ["tie_word_embeddings is true but text_config.tie_word_embeddings is false"],
        ),
        ({}, ["model_type is missing", "no keys"]),
        (None, ["config is null", "a path or a dict"]),
        (3, ["config is 3"]),
    ],
)  # fmt: skip
def test_bad_fields_are_named(config, words):
    says(config, *words)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["is empty"]),
        (b" \n", ["is empty"]),
        (b"null", ["top level is null"]),
        (b'"llama"', ["top level is"]),
        (b'\n<?xml version="1.0"?>', ["HTML or XML"]),
        (b'{"model_type": "llama"}{}', ["line 1", "Extra data"]),
        ('{"model_type": "llama"}'.encode("utf-16"), ["UTF-16"]),
        (b'\xef\xbb\xbf{\n"a": "\xe8"}', ["line 2", "byte offset 11"]),
        (b"[" * 100_000, ["nested too deeply"]),
        (b'{"a": ' * 100_000, ["nested too deeply"]),
        (b'{"model_type": "llama",\n "rope": {"x": [1, NaN]}}', ["line 2", "rope.x[1] is NaN"]),
        (b'{"a": {"b": 1,\n "b": 2}}', ["line 2", "a.b is given twice"]),
        (b'{"a": [{"b": 1}, {"b": 2}]}', ["model_type is missing"]),
        (b'{"model_type": "llama",\n "hidden_size": ' + b"9" * 5000 + b"}", ["line 2", "is about 1.00e5000"]),
        (b'{"model_type": "llama",\n "hidden_size": 1e999}', ["line 2", "hidden_size is Infinity"]),
        (
            b'{"model_type": "gemma3", "text_config": {"hidden_size": 8,\n\n"num_hidden_layers": 0}}',
            ["line 3", "text_config.num_hidden_layers is 0"],
        ),
        (b'{"model_type": "llama", "vision": {"hidden_size": 1},\n"hidden_size": -1}', ["line 2", "hidden_size is -1"]),
        (b"x" * (16 * 2**20 + 1), ["bytes"]),
    ],
    ids=range(18),
)  # fmt: skip
def test_bad_text_names_file_and_line(tmp_path, data, words):
    path = tmp_path / "config.json"
    path.write_bytes(data)
    assert says(path, *words).startswith(str(path))


def test_paths_that_are_no_files(tmp_path):
    says(tmp_path / "none.json", "none.json", "cannot be read")
    says(str(tmp_path), "is a directory")
    says("a\0b", "is not a file name")
    says("x" * 5000, "cannot be read")


def test_a_config_that_holds_itself_is_refused():
    config = dict(GOOD)
    config["self"] = config
    says(config, "nested too deeply")


def test_byte_order_mark_crlf_and_ignored_infinity_are_accepted(tmp_path):
    path = tmp_path / "config.json"
    text = json.dumps(GOOD | {"time_step_limit": [0.0, math.inf]}, indent=1).replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert ModelShape.from_config(str(path)).parameters == ModelShape.from_config(GOOD).parameters


@pytest.mark.parametrize("cut", [1, 20, 57, 130])
def test_every_cut_file_is_refused(tmp_path, cut):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD)[:cut])
    says(path, "line 1", "ends early")


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([0, -1, 2**40, "4"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
STARTS = [config for _, config in PUBLISHED.values()] + [NESTED]


@settings(max_examples=300, deadline=None)
@given(start=st.sampled_from(STARTS), data=st.data())
def test_any_value_in_any_field_gives_a_count_or_a_sentence(start, data):
    extra = ["architectures", "text_config", "head_dim", "tie_word_embeddings", "_name_or_path", "mlp_only_layers"]
    key = data.draw(st.sampled_from([*start, *extra]))
    config = start | {key: data.draw(anything)}
    try:
        shape = ModelShape.from_config(config)
    except ConfigError as error:
        assert "\n" not in str(error)
        return
    assert 0 < shape.active_parameters <= shape.parameters
    assert repr(shape) and shape._repr_html_()


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='{}[]",:\\ abu0d1\n', max_size=30))
def test_any_text_gives_a_sentence(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("text") / "config.json"
    path.write_text(text)
    says(path, str(path))


# ---------------------------------------------------------------------------------------- display and the rest


def test_table_adds_up_and_prints():
    shape = ModelShape.from_config(PUBLISHED["mixtral-8x7b"][1], name="<mix>")
    table = shape.table()
    assert sum(row.parameters for row in table.rows) == shape.parameters
    assert sum(Fraction(row.parameters, shape.parameters) for row in table.rows) == 1
    lines = repr(table).splitlines()
    assert len(lines) == 2 + len(table.rows) and len({len(line) for line in lines[1:]}) == 1
    assert "&lt;mix&gt;" in shape._repr_html_() and "<mix>" not in shape._repr_html_()
    assert table._repr_html_().count("<tr>") == 1 + len(table.rows)


@pytest.mark.parametrize(
    ("outer", "inner", "tied"),
    [
        ({}, {}, False),
        ({}, TIED, True),
        (TIED, {}, True),
        ({"tie_word_embeddings": False}, TIED, True),
        (TIED, TIED, True),
    ],
)
def test_a_nested_text_model_is_tied_where_either_level_says_so(outer, inner, tied):
    assert ModelShape.from_config(NESTED | outer | {"text_config": GOOD | inner}).tied is tied


def test_repr_names_what_was_assumed():
    shape = ModelShape.from_config({"model_type": "llava", "text_config": {"model_type": "llama"}})
    assert "text_config.hidden_size = 4096" in repr(shape) and "class defaults" in repr(shape)
    assert "class defaults" not in repr(ModelShape.from_config(GOOD))


def test_names(tmp_path):
    assert ModelShape.from_config(GOOD).name == "llama"
    assert ModelShape.from_config(GOOD | {"_name_or_path": "meta/Llama/"}).name == "Llama"
    assert ModelShape.from_config(GOOD | {"_name_or_path": "meta/Llama"}, name="mine").name == "mine"
    (tmp_path / "tiny.json").write_text(json.dumps(GOOD))
    assert ModelShape.from_config(tmp_path / "tiny.json").name == "tiny"


def test_a_weight_counts_stored_active_and_multiplied():
    expert = Weight("experts.up", (3, 5), copies=4, active=2)
    assert (expert.parameters, expert.active_parameters, expert.matmul_parameters) == (60, 30, 30)
    tied = Weight("head", (3, 5), tied=True)
    assert (tied.parameters, tied.active_parameters, tied.matmul_parameters) == (0, 0, 15)
    assert Block("layer", (expert, tied), repeat=2).parameters == 120


@pytest.mark.parametrize("wrong", [{"context": -1}, {"context": math.nan}, {"batch": True}, {"bytes_per_value": "2"}])
def test_cache_arguments_are_checked(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .* is needed"):
        ModelShape.from_config(GOOD).kv_cache_bytes(**({"context": 1} | wrong))


def test_half_byte_values_round_up():
    assert ModelShape.from_config(GOOD).kv_bytes_per_token(0.5) == 32 * 8 * 128


def test_samples_are_the_published_models():
    gpt3 = 12 * 96 * 12288**2 + 13 * 96 * 12288 + (50257 + 2048 + 2) * 12288
    found = {path.stem: ModelShape.from_config(path) for path in SAMPLES.glob("*.json")}
    assert {name: shape.parameters for name, shape in found.items()} == {
        "gpt2": 124_439_808, "gpt3-175b": gpt3, "llama-2-7b": 6_738_415_616,
        "llama-3-70b": 70_553_706_496, "mixtral-8x7b": 46_702_792_704, "deepseek-v3": 671_026_404_352,
            "qwen3-0.6b": 596_049_920,
    }  # fmt: skip
    assert all(shape.name == name and not shape.assumed for name, shape in found.items())


def test_the_module_needs_the_standard_library_only():
    code = "import sys, distgen_lab.models; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_supported_model_types_are_public_and_sorted():
    assert {"llama", "gpt2", "deepseek_v3", "kimi_k2", "gemma3_text", "t5"} <= set(SUPPORTED_MODEL_TYPES)
    assert list(SUPPORTED_MODEL_TYPES) == sorted(SUPPORTED_MODEL_TYPES, key=str.lower)

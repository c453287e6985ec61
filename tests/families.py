"""Tiny random models of the families of transformers, and what magcli can do with each.

Run as a program, this prints the table of docs/models.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 8
BOTH_KINDS = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8}

NO_INTERFACE = "it does not call transformers' attention interface"
NO_ARGUMENTS = "it passes no arguments on to the attention function"
OTHER_MASK = "it changes the attention mask"
RECURRENT = "layers of type"
WIDTHS = "its layers have keys of different widths"
DIFFERENT = "would not compute what it computes"


@dataclass(frozen=True)
class Family:
    """Models with one ``kind`` (``model_type``) of configuration, as ``settings`` beyond ``SIZES`` make a tiny one.

    ``training`` and ``embedded`` are reasons for a refusal, empty if the family runs. ``vllm``: a test runs it there.
    """

    name: str
    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    training: str = ""
    embedded: str = ""
    vllm: bool = False

    @property
    def label(self) -> str:
        """The name of its test."""
        return f"{self.name} ({self.kind})"


def neither(name: str, kind: str, training: str, embedded: str = "", **settings: Any) -> Family:
    """A family that is refused in training and in the embedded engine, for one reason or for two."""
    return Family(name, kind, settings, training, embedded or training)


LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
    "original_max_position_embeddings": 64, "short_factor": [1.0 + index / 10 for index in range(12)],
    "long_factor": [4.0] * 12,
}  # fmt: skip

FAMILIES = [
    Family("Llama 3", "llama", {"rope_parameters": LLAMA3_ROPE}, vllm=True),
    Family("Qwen2.5", "qwen2", vllm=True),
    Family("Qwen3", "qwen3", {"head_dim": 16}, vllm=True),
    Family("Mistral", "mistral", {"head_dim": 8, "sliding_window": WINDOW}, vllm=True),
    Family("Ministral", "ministral", {"head_dim": 8, **BOTH_KINDS}, vllm=True),
    Family("Ministral 3", "ministral3", {"head_dim": 8}, vllm=True),
    Family(
        "Gemma 2",
        "gemma2",
        {
            "head_dim": 8,
            "query_pre_attn_scalar": 8,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
            **BOTH_KINDS,
        },
        vllm=True,
    ),
    Family("Gemma 3", "gemma3_text", {"head_dim": 8, "query_pre_attn_scalar": 8, **BOTH_KINDS}, vllm=True),
    Family("Phi-3", "phi3", {"sliding_window": WINDOW}, vllm=True),
    Family(
        "Phi-4-mini",
        "phi3",
        {
            "sliding_window": None,
            "hidden_size": 128,
            "partial_rotary_factor": 0.75,
            "rope_parameters": LONGROPE,
            "original_max_position_embeddings": 64,
            "tie_word_embeddings": True,
        },
        vllm=True,
    ),
    Family("OLMo 2", "olmo2", vllm=True),
    Family("SmolLM3", "smollm3", vllm=True),
    Family("GLM-4", "glm4", {"head_dim": 8}, vllm=True),
    Family("Apertus", "apertus"),
    Family("Arcee", "arcee"),
    Family("BioGPT", "biogpt"),
    Family("BitNet", "bitnet"),
    Family("Command R", "cohere", {"logit_scale": 0.5}),
    Family("Command A", "cohere2", {"logit_scale": 0.5, **BOTH_KINDS}),
    Family("CWM", "cwm", {"head_dim": 8, "rope_parameters": LLAMA3_ROPE, **BOTH_KINDS}),
    Family("DeepSeek-V2", "deepseek_v2", {**ROUTED, **LATENT, "num_key_value_heads": 4, "head_dim": 8}),
    Family("DeepSeek-V3", "deepseek_v3", {**ROUTED, **LATENT, "num_key_value_heads": 4, "first_k_dense_replace": 1}),
    Family("DiffLlama", "diffllama"),
    Family("dots.llm1", "dots1", {**ROUTED, "head_dim": 8, "n_shared_experts": 1, "first_k_dense_replace": 1}),
    Family("ERNIE 4.5", "ernie4_5", {"head_dim": 8}),
    Family("EXAONE 4", "exaone4", BOTH_KINDS),
    Family("EXAONE MoE", "exaone_moe", EXPERTS),
    Family("FlexOlmo", "flex_olmo", {"num_experts": 4, "num_experts_per_tok": 2}),
    Family("Gemma", "gemma", {"head_dim": 8}),
    Family("GLM", "glm", {"head_dim": 8}),
    Family("GLM-4.5", "glm4_moe", {**ROUTED, "head_dim": 8, "first_k_dense_replace": 1}),
    Family("GPT-2", "gpt2"),
    Family("GPT-NeoX", "gpt_neox"),
    Family("gpt-oss", "gpt_oss", {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, **BOTH_KINDS}),
    Family("Granite", "granite", {"logits_scaling": 4.0, "embedding_multiplier": 4.0, "residual_multiplier": 0.5}),
    Family("Granite MoE", "granitemoe", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    Family(
        "Granite MoE with a shared expert",
        "granitemoeshared",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 16},
    ),
    Family("Helium", "helium", {"head_dim": 8}),
    Family("Hunyuan", "hunyuan_v1_dense", {"head_dim": 8}),
    Family(
        "Hunyuan MoE",
        "hunyuan_v1_moe",
        {"head_dim": 8, "num_experts": 4, "moe_topk": 2, "moe_intermediate_size": 16},
    ),
    Family("Jais 2", "jais2"),
    Family("MiniMax-M2", "minimax_m2", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}),
    Family("Mixtral", "mixtral", {"num_local_experts": 4, "sliding_window": WINDOW}),
    Family("nanochat", "nanochat"),
    Family("OLMo", "olmo"),
    Family("OLMo 3", "olmo3", BOTH_KINDS),
    Family("OLMoE", "olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    Family("OPT", "opt", {"word_embed_proj_dim": 32, "ffn_dim": 48}),
    Family("Persimmon", "persimmon"),
    Family("Phi", "phi"),
    Family("Phi-3.5-MoE", "phimoe", {"num_local_experts": 4}),
    Family("Qwen1.5-MoE", "qwen2_moe", {**EXPERTS, "shared_expert_intermediate_size": 16}),
    Family("Qwen3-MoE", "qwen3_moe", {**EXPERTS, "head_dim": 8}),
    Family("Seed-OSS", "seed_oss", {"head_dim": 8}),
    Family("Solar Open", "solar_open", {**ROUTED, "head_dim": 8, "moe_intermediate_size": 16}),
    Family("StarCoder", "gpt_bigcode"),
    Family("StarCoder2", "starcoder2", {"sliding_window": WINDOW}),
    Family("VaultGemma", "vaultgemma", {"head_dim": 8, "query_pre_attn_scalar": 8, **BOTH_KINDS}),
    Family("Youtu", "youtu", {**LATENT, "num_key_value_heads": 4}),
    neither("Bamba", "bamba", RECURRENT, NO_INTERFACE, **MAMBA),
    neither("BLOOM", "bloom", NO_INTERFACE),
    neither("CodeGen", "codegen", NO_INTERFACE, n_embd=32, n_head=4, n_layer=2, rotary_dim=4),
    neither("Doge", "doge", OTHER_MASK),
    neither("Falcon", "falcon", NO_INTERFACE, new_decoder_architecture=False, multi_query=False, alibi=True),
    neither("Falcon Mamba", "falcon_mamba", RECURRENT, NO_INTERFACE, state_size=8),
    neither("Falcon-H1", "falcon_h1", RECURRENT, DIFFERENT, **MAMBA, mamba_d_ssm=64, head_dim=8),
    Family("MiMo-V2-Flash", "mimo_v2_flash", {"head_dim": 8}, embedded=WIDTHS),
    Family(
        "Gemma 4",
        "gemma4_text",
        {
            "head_dim": 8,
            "global_head_dim": 16,
            "vocab_size_per_layer_input": 96,
            "hidden_size_per_layer_input": 8,
            **BOTH_KINDS,
        },
        embedded=WIDTHS,
    ),
    neither(
        "GPT-Neo",
        "gpt_neo",
        NO_INTERFACE,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=WINDOW,
    ),
    neither("GPT-J", "gptj", NO_INTERFACE, rotary_dim=4),
    neither(
        "Granite 4",
        "granitemoehybrid",
        RECURRENT,
        DIFFERENT,
        **MAMBA,
        layer_types=["mamba", "attention"],
        num_local_experts=2,
        shared_intermediate_size=16,
    ),
    neither("Jamba", "jamba", RECURRENT, NO_INTERFACE, num_experts=2),
    neither("LFM2", "lfm2", RECURRENT, DIFFERENT, layer_types=["conv", "full_attention"]),
    neither("LFM2-MoE", "lfm2_moe", RECURRENT, DIFFERENT, **EXPERTS, layer_types=["conv", "full_attention"]),
    neither(
        "Llama 4",
        "llama4_text",
        RECURRENT,
        "neither causal nor a sliding window",
        num_local_experts=4,
        head_dim=8,
        attention_chunk_size=8,
        intermediate_size_mlp=48,
    ),
    Family(
        "LongCat",
        "longcat_flash",
        {
            **LATENT,
            "num_layers": 1,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "zero_expert_num": 2,
            "moe_topk": 2,
            "expert_ffn_hidden_size": 16,
            "ffn_hidden_size": 48,
            "head_dim": 8,
        },
    ),
    neither(
        "Kimi Linear",
        "kimi_linear",
        RECURRENT,
        DIFFERENT,
        **LATENT | {"q_lora_rank": None},
        num_experts=4,
        num_experts_per_token=2,
        moe_intermediate_size=16,
        linear_head_dim=8,
        linear_num_heads=4,
        num_key_value_heads=4,
        layer_types=["linear_attention", "full_attention"],
        mlp_layer_types=["dense", "sparse"],
    ),
    neither("Mamba", "mamba", RECURRENT, NO_INTERFACE, state_size=8),
    neither("Mamba 2", "mamba2", RECURRENT, NO_INTERFACE, state_size=8, head_dim=8, num_heads=8),
    neither("MiniMax", "minimax", RECURRENT, DIFFERENT, num_local_experts=2, head_dim=8),
    neither("MPT", "mpt", NO_INTERFACE, d_model=32, n_heads=4, n_layers=2, expansion_ratio=2, max_seq_len=128),
    neither("Nemotron", "nemotron", NO_ARGUMENTS),
    neither(
        "Nemotron-H",
        "nemotron_h",
        RECURRENT,
        DIFFERENT,
        mamba_num_heads=8,
        mamba_head_dim=8,
        ssm_state_size=8,
        n_groups=2,
        moe_intermediate_size=16,
        moe_shared_expert_intermediate_size=16,
        head_dim=8,
    ),
    neither(
        "Qwen3-Next",
        "qwen3_next",
        RECURRENT,
        DIFFERENT,
        **EXPERTS,
        shared_expert_intermediate_size=16,
        head_dim=8,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention"],
    ),
    neither(
        "Qwen3.5", "qwen3_5_text", RECURRENT, DIFFERENT, head_dim=8, layer_types=["linear_attention", "full_attention"]
    ),
    neither(
        "Qwen3.5-MoE",
        "qwen3_5_moe_text",
        RECURRENT,
        DIFFERENT,
        head_dim=8,
        **EXPERTS,
        shared_expert_intermediate_size=16,
        layer_types=["linear_attention", "full_attention"],
    ),
    neither("RecurrentGemma", "recurrent_gemma", DIFFERENT, num_hidden_layers=3, lru_width=32, num_key_value_heads=1),
    neither("StableLM", "stablelm", NO_ARGUMENTS, hidden_size=64),
    neither("XGLM", "xglm", NO_INTERFACE),
]


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Families with the same outcome: their names, and training, embedded engine and vLLM."""
    outcomes: dict[tuple[str, str, str], list[str]] = {}
    for family in FAMILIES:
        vllm = "yes" if family.vllm else "not tested"
        outcome = "no" if family.training else "yes", "no" if family.embedded else "yes", vllm
        outcomes.setdefault(outcome, []).append(f"{family.name} (`{family.kind}`)")
    for outcome, names in outcomes.items():
        yield ", ".join(names), *outcome


def table() -> str:
    """The table of docs/models.md."""
    lines = ["| families (`model_type`) | training | embedded engine | vLLM |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows())])


if __name__ == "__main__":
    print(table())

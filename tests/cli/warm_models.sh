# SPDX-License-Identifier: Apache-2.0
# warm --from: the specs of published configurations, one model of each kind; what a file lacks is named.
model() {
    cat >"$1.json"
    t quern warm --from "$1.json" --list
}
model llama <<END
{"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
 "torch_dtype": "bfloat16"}
END
model qwen2 <<END
{"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
 "sliding_window": 131072, "use_sliding_window": false, "torch_dtype": "bfloat16"}
END
model qwen3_moe <<END
{"model_type": "qwen3_moe", "hidden_size": 4096, "head_dim": 128, "num_attention_heads": 64, "num_key_value_heads": 4,
 "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true, "torch_dtype": "bfloat16"}
END
model deepseek_v3 <<END
{"model_type": "deepseek_v3", "hidden_size": 7168, "vocab_size": 129280, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
 "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8,
 "topk_group": 4, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true,
 "routed_scaling_factor": 2.5, "torch_dtype": "bfloat16"}
END
model deepseek_v2 <<END
{"model_type": "deepseek_v2", "hidden_size": 5120, "vocab_size": 102400, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
 "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 160, "num_experts_per_tok": 6, "n_group": 8,
 "topk_group": 3, "scoring_func": "softmax", "topk_method": "group_limited_greedy", "norm_topk_prob": false,
 "routed_scaling_factor": 16, "torch_dtype": "bfloat16"}
END
model deepseek_v32 <<END
{"model_type": "deepseek_v32", "hidden_size": 7168, "vocab_size": 129280, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
 "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8,
 "topk_group": 4, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true,
 "routed_scaling_factor": 2.5, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048,
 "torch_dtype": "bfloat16"}
END
model gemma2 <<END
{"model_type": "gemma2", "hidden_size": 4608, "head_dim": 128, "num_attention_heads": 32, "vocab_size": 256000,
 "query_pre_attn_scalar": 144, "attn_logit_softcapping": 50.0, "sliding_window": 4096, "torch_dtype": "bfloat16"}
END
model gemma3 <<END
{"model_type": "gemma3", "torch_dtype": "bfloat16",
 "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "sliding_window": 1024}}
END
printf '{"top_k": 64}\n' >generation_config.json
t quern warm --from gemma3.json --list
t quern warm --from gemma3.json --sample 20 --page 128 --list
t quern warm --from gemma3.json --page 24 --list # no note alone: the paged kernel would be missing
rm generation_config.json
model mamba <<END
{"model_type": "mamba"}
END
model none <<END
{}
END
model short <<END
{"model_type": "llama", "hidden_size": 4096}
END
model odd <<END
{"model_type": "llama", "hidden_size": 100, "num_attention_heads": 7, "vocab_size": 1000}
END
model word <<END
{"model_type": "llama", "vocab_size": "many"}
END
model huge <<END
{"model_type": "llama", "vocab_size": 1000000000, "head_dim": 64}
END
printf '{' >syntax.json
t quern warm --from syntax.json --list

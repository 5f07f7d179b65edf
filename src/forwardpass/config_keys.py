"""Config keys that change nothing, and why some others are refused.

Each list holds what cannot change a logit, whatever the family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NEUTRAL = {
    "who wrote it, and with what": """
        _attn_implementation _attn_implementation_autoset _attn_implementation_internal
        _commit_hash _experts_implementation_internal _flash_attn_2_enabled _name_or_path
        architectures attn_implementation experts_implementation finetuning_task is_llama_config
        model_name name_or_path predict_special_tokens torchscript transformers.js_config
        transformers_version unsloth_fixed unsloth_version
    """,
    "training": """
        attention_dropout attn_pdrop classifier_dropout embd_pdrop gradient_checkpointing
        hidden_dropout hidden_dropout_prob initializer_range neftune_noise_alpha pretraining_tp
        resid_pdrop
    """,
    "what a call gives back, and how it is cached or cut": """
        cache_implementation chunk_size_feed_forward output_attentions
        output_hidden_states output_past output_scores return_dict return_dict_in_generate use_cache
    """,
    "classifiers": """
        _num_labels id2label label2id num_labels problem_type
    """,
    "models with an encoder beside the decoder, and TensorFlow": """
        is_decoder tf_legacy_loss tie_encoder_decoder use_bfloat16 xla_device
    """,
    "tokens": """
        bos_token_id decoder_start_token_id eos_token_id eos_token_ids model_max_length pad_token_id
        prefix sep_token_id tokenizer_class unk_token_id
    """,
    "generation, which transformers reads from generation_config.json alone": """
        bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping
        encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id
        forced_eos_token_id length_penalty max_length min_length no_repeat_ngram_size
        num_beam_groups num_beams num_return_sequences remove_invalid_values
        repetition_penalty suppress_tokens task_specific_params temperature top_k top_p
        typical_p
    """,
}
NEUTRAL = frozenset(key for keys in _NEUTRAL.values() for key in keys.split())

# Keys of any family that are neutral at one value only; false is not it.
NEUTRAL_VALUES: Mapping[str, object] = {
    "is_causal": True,
    "partial_rotary_factor": 1.0,
    "rotary_scaling_factor": 1.0,
}

# Keys that no family reads, and what each must repeat to be neutral.
REPEATS: Mapping[str, str] = {
    "afn": "hidden_act",
    "max_seq_len": "max_position_embeddings",
    "max_sequence_length": "max_position_embeddings",
    "n_vocab": "vocab_size",
    "rope_pct": "partial_rotary_factor",
    "seq_length": "max_position_embeddings",
}
# What a reader cannot see from the key alone.
REASONS: Mapping[str, str] = {
    **{key: f"{name} is another" for key, name in REPEATS.items()},
    "auto_map": "the repository brings its own code, which is never run and may compute otherwise",
}


# Families whose published files are named after another.
_NAMED_AFTER: Mapping[str, str] = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), "deepseek"),
}
_OF_INPUTS = ("AutoTokenizer", "AutoProcessor", "AutoImageProcessor", "AutoFeatureExtractor")


def brings_its_own_code(auto_map: object, model_type: object) -> bool:
    """Whether a repository maps more than the family's published files to classes.

    Many repositories keep copies of `modeling_TYPE.py` and its kin, from before the family was part
    of transformers. Any other name may be code that computes something else. Classes that turn text
    or images into inputs compute no logit.
    """
    if not isinstance(auto_map, dict):
        return True
    computing = [value for key, value in auto_map.items() if key not in _OF_INPUTS]
    names = [name for value in computing for name in _listed(value)]
    kind = re.escape(str(model_type))
    other = re.escape(_NAMED_AFTER.get(str(model_type), str(model_type)))
    standard = re.compile(rf"(.*--)?(configuration|modeling)_({kind}|{other})\.\w+")
    return not all(isinstance(name, str) and standard.fullmatch(name) for name in names)


def _listed(value: object) -> list[object]:
    return [name for name in value if name is not None] if isinstance(value, list) else [value]

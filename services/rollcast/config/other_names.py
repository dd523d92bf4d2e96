"""Names of settings that users bring from other systems, and what each is here.

Each was looked up in the documents of TRL, verl, OpenRLHF, NeMo-RL, prime-rl or vLLM. A name may be dotted: `rollout.n`
answers for a setting `n` of a group `rollout`, and before `n` alone. docs/reference/other-names.md is made of this table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NAMES = "docs/reference/other-names.md"
MAX_FOUND = 20
"""Names that are answered of one unknown group."""
MAX_DEPTH = 8
"""Levels of such a group; those of the other systems have five."""


@dataclass(frozen=True, slots=True)
class Counterpart:
    """What another system's name is here."""

    names: tuple[str, ...]
    setting: str
    """The dotted name here; empty = not supported."""
    example: str
    """One line of a run file; for an unsupported name the reason and the replacement."""
    page: str = "docs/other-systems.md"
    """The page that describes why it is not supported."""

    @property
    def sentence(self) -> str:
        """What follows the name."""
        if self.setting:
            return f"is not a setting; here it is {self.setting}: `{self.example}`"
        return f"is not supported: {self.example} ({self.page})"


def _is(setting: str, example: str, *names: str) -> Counterpart:
    return Counterpart(names, setting, example)


def _not(reason: str, *names: str, page: str = "docs/other-systems.md") -> Counterpart:
    return Counterpart(names, "", reason, page)


_OPTIMIZER = "recipe.optimizer"
COUNTERPARTS: tuple[Counterpart, ...] = (
    # The batch
    _is("recipe.rollouts_per_prompt", "recipe: {rollouts_per_prompt: 16}", "group_size", "num_generations", "n",
        "rollout.n", "n_samples_per_prompt", "num_generations_per_prompt", "rollouts_per_example", "num_rollouts",
        "samples_per_prompt", "num_samples_per_prompt", "num_return_sequences", "rollouts_per_group"),
    _is("recipe.prompts_per_step", "recipe: {prompts_per_step: 48}", "batch_size", "train_batch_size",
        "data.train_batch_size", "rollout_batch_size", "global_batch_size", "train_global_batch_size",
        "generation_batch_size", "num_prompts_per_step", "groups_per_batch", "gen_batch_size"),
    _is("trainer.tokens_per_micro_batch", "trainer: {tokens_per_micro_batch: 16384}", "per_device_train_batch_size",
        "gradient_accumulation_steps", "micro_batch_size", "train_micro_batch_size", "micro_train_batch_size",
        "ppo_micro_batch_size", "ppo_micro_batch_size_per_gpu", "ppo_max_token_len_per_gpu", "logprob_batch_size",
        "log_prob_micro_batch_size", "log_prob_micro_batch_size_per_gpu", "micro_rollout_batch_size",
        "max_tokens_per_gpu", "use_dynamic_bsz", "packing_samples", "sequence_packing", "auto_find_batch_size",
        "dynamic_batching", "train_mb_tokens"),
    _not("a step is one update on all of its rollouts; recipe.schedule: {kind: ppo-off-policy, max_staleness: 4} makes "
         "4 updates for each generation phase", "num_iterations", "ppo_epochs", "ppo_mini_batch_size", "mini_batch_size",
         "steps_per_generation", "update_epochs", "ppo_inner_epochs", page=NAMES),
    # Lengths and sampling
    _is("recipe.max_completion_tokens", "recipe: {max_completion_tokens: 4096}", "max_completion_length",
        "max_response_length", "max_new_tokens", "generate_max_len", "max_tokens", "response_length",
        "sampling.max_tokens", "max_gen_len", "max_response_tokens"),
    _is("recipe.max_prompt_tokens", "recipe: {max_prompt_tokens: 1024}", "max_prompt_length", "prompt_max_len",
        "max_input_length", "prompt_length", "max_prompt_len", "max_input_seq_length", "filter_overlong_prompts"),
    _is("model.max_length", "model: {max_length: 32768}", "max_seq_len", "max_seq_length", "max_model_len", "seq_len",
        "seq_length", "max_total_sequence_length", "vllm_max_model_length", "sequence_length", "context_length"),
    _is("recipe.temperature", "recipe: {temperature: 1.0}", "temperature", "sampling_temperature", "temp"),
    _not("completions are drawn from the whole distribution, so that their log-probs are the trained policy's; "
         "recipe.temperature alone changes it", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
         "frequency_penalty", "do_sample", "generation_kwargs", "stop", "stop_token_ids", "stop_strings", page=NAMES),
    # The optimizer
    _is(f"{_OPTIMIZER}.learning_rate", "recipe: {optimizer: {learning_rate: 5.0e-7}}", "lr", "learning_rate", "optim.lr",
        "actor_learning_rate", "actor_lr", "base_lr", "max_lr"),
    _is(f"{_OPTIMIZER}.warmup_steps", "recipe: {optimizer: {warmup_steps: 100}}", "warmup_ratio", "lr_warmup_steps",
        "lr_warmup_ratio", "lr_warmup_steps_ratio", "num_warmup_steps", "warmup"),
    _is(f"{_OPTIMIZER}.max_grad_norm", "recipe: {optimizer: {max_grad_norm: 1.0}}", "grad_clip", "clip_grad",
        "gradient_clipping", "max_norm", "grad_norm_clip", "clip_grad_norm", "policy.max_grad_norm"),
    _is(f"{_OPTIMIZER}.betas", "recipe: {optimizer: {betas: [0.9, 0.95]}}", "adam_beta1", "adam_beta2", "adam_betas",
        "betas1", "betas2", "beta1", "beta2"),
    _is(f"{_OPTIMIZER}.epsilon", "recipe: {optimizer: {epsilon: 1.0e-15}}", "adam_epsilon", "adam_eps", "optim.eps"),
    _is(f"{_OPTIMIZER}.weight_decay", "recipe: {optimizer: {weight_decay: 0.01}}", "wd", "l2", "optim.weight_decay"),
    _not("the learning rate is constant after recipe.optimizer.warmup_steps", "lr_scheduler_type", "lr_scheduler",
         "scheduler", "lr_decay_style", "min_lr", "min_lr_ratio", "lr_scheduler_kwargs", page=NAMES),
    _not("AdamW is the one optimizer; its values are in recipe.optimizer", "optim", "optimizer_name",
         "optimizer_type", "optimizer.name", "optimizer.type", "optim.type", "optim.name", page=NAMES),
    # The objective
    _is("recipe.kl", "recipe: {kl: {coefficient: 0.001}}", "beta", "kl_coef", "kl_beta", "kl_coeff", "kl_loss_coef",
        "init_kl_coef", "kl_penalty_coef", "use_kl_loss", "use_kl_in_reward", "kl_ctrl", "kl_ctrl.kl_coef", "kl_tau",
        "reference_policy_kl_penalty", "kl_coefficient", "kl_penalty", "kl_loss_type", "kl_estimator", "target_kl"),
    _is("recipe.kl.reference", "recipe: {kl: {reference: Qwen/Qwen3-0.6B}}", "ref_model", "reference_model",
        "ref_model_path", "reference_policy", "ref_policy", "sync_ref_model", "ref_model_mixup_alpha", "ref"),
    _is("recipe.entropy_bonus", "recipe: {entropy_bonus: 0.001}", "entropy_coeff", "entropy_coef",
        "entropy_loss_coef", "entropy_coefficient", "entropy_bonus_coef", "ent_coef"),
    _is("recipe.loss", "recipe: {loss: {kind: dapo}}", "loss_type", "loss_fn", "algorithm", "objective", "algo",
        "policy_loss", "loss_mode", "importance_sampling_level", "loss_function", "trainer_type", "loss.type",
        "loss.name", "ratio_type", "sequence_level_importance_ratios"),
    _is("recipe.loss.clip_low", "recipe: {loss: {kind: dapo, clip_low: 0.2}}", "epsilon", "eps_clip", "clip_ratio",
        "clip_ratio_low", "ratio_clip_min", "clip_range", "clip_eps", "cliprange", "eps_clip_low"),
    _is("recipe.loss.clip_high", "recipe: {loss: {kind: dapo, clip_high: 0.28}}", "epsilon_high", "clip_ratio_high",
        "ratio_clip_max", "eps_clip_high", "eps_clip_low_high", "clip_range_high"),
    _is("recipe.loss.ratio_max", "recipe: {loss: {kind: cispo, ratio_max: 5.0}}", "delta", "clip_ratio_c",
        "truncated_importance_sampling_ratio", "vllm_importance_sampling_cap", "tis_imp_ratio_cap", "is_ratio_max",
        "use_importance_sampling_correction", "vllm_importance_sampling_correction", "rollout_is",
        "rollout_correction"),
    _is("recipe.aggregation", "recipe: {aggregation: token}", "loss_agg_mode", "token_level_loss",
        "loss_aggregation", "loss_reduction", "sequence_level_loss"),
    _is("recipe.advantage_normalisation", "recipe: {advantage_normalisation: prompt}", "scale_rewards",
        "norm_adv_by_std_in_grpo", "normalize_rewards", "adv_estimator", "advantage_estimator", "normalize_advantages",
        "whiten_advantages", "advantage_normalization", "use_leave_one_out_baseline", "reward_baseline",
        "normalize_reward"),
    _is("recipe.zero_variance_filter", "recipe: {zero_variance_filter: true, refill_filtered: true}", "filter_groups",
        "dynamic_filtering", "dynamic_sampling", "use_dynamic_sampling", "filter_zero_std", "dynamic_history",
        "online_difficulty_filtering"),
    _is("recipe.exclude_truncated", "recipe: {exclude_truncated: true}", "mask_truncated_completions",
        "overlong_filtering", "mask_truncated", "filter_overlong"),
    _is("recipe.length_control", "recipe: {length_control: {kind: penalty, max_tokens: 4000, cache_tokens: 1000}}",
        "overlong_buffer", "overlong_buffer_len", "length_penalty", "soft_overlong_punishment", "overlong_penalty"),
    _is("recipe.schedule", "recipe: {schedule: {kind: pipeline, max_staleness: 8}}", "max_async_level", "async_level",
        "max_off_policy_steps", "max_trajectory_age_steps", "max_lag", "async_grpo", "staleness_threshold",
        "async_training", "strict_async_level", "max_head_offpolicyness", "off_policy_steps", "async_mode",
        "partial_rollout", "in_flight_weight_updates", "async_queue_size", "trigger_parameter_sync_step"),
    _is("recipe.lm_head", "recipe: {lm_head: fp32}", "fp32_lm_head", "cast_lm_head_to_fp32", "enable_fp32_lm_head"),
    _is("recipe.unique_prompts", "recipe: {unique_prompts: 1000}", "max_samples", "train_max_samples",
        "max_train_samples", "num_train_samples", "max_examples"),
    _not("advantages are the group's; there is no value model", "critic", "value_model", "gamma", "lam", "lambd",
         "gae_lambda", "critic_learning_rate", "critic_pretrain", "value_head", "vf_coef", "value_loss_coef",
         "critic_lr", "critic_warmup", "freezing_actor_steps",
         page=NAMES),
    # The model
    _is("model.path", "model: {path: Qwen/Qwen3-0.6B}", "model_name_or_path", "model_name", "pretrain", "model_path",
        "base_model", "model_id", "actor_model", "policy_model", "hf_model", "pretrained", "tokenizer", "tokenizer_name",
        "tokenizer_path", "model.name", "model.model_name", "policy.model_name", "actor_rollout_ref.model.path"),
    _is("model.dtype", "model: {dtype: bfloat16}", "bf16", "fp16", "precision", "torch_dtype", "param_dtype",
        "mixed_precision", "model_dtype"),
    _not("every weight is trained", "lora", "peft", "peft_config", "use_peft", "use_lora", "lora_r", "lora_rank",
         "lora_alpha", "lora_dropout", "lora_target_modules", "qlora", "load_in_4bit", "load_in_8bit", "adapter", "dora",
         "lora_config", "lora_adapter", "target_modules"),
    # Data and verifiers
    _is("tasks.dataset", "tasks: {dataset: {kind: jsonl, name: rows, path: rows.jsonl}}", "dataset_name", "train_files",
        "prompt_data", "train_file", "data_path", "dataset_path", "train_data", "train_dataset", "dataset_train_split",
        "data", "train_path", "data.path"),
    _is("tasks.downstream", "tasks: {downstream: [{dataset: {kind: jsonl, name: other, path: test.jsonl}}]}",
        "evaluation.path", "evaluation.dataset", "evaluation.data", "evaluation.file", "val_files", "val_file",
        "eval_dataset", "validation_dataset", "test_files", "val_data", "eval_data", "eval_files", "eval_path",
        "val_dataset", "dataset_test_split", "test_dataset", "evaluation.datasets", "eval.environments", "test_path"),
    _is("tasks.dataset.prompt_field", "tasks: {dataset: {kind: jsonl, name: rows, path: rows.jsonl, prompt_field: question}}",
        "prompt_key", "input_key", "prompt_column", "question_field", "input_field", "problem_key"),
    _is("tasks.dataset.answer_field", "tasks: {dataset: {kind: jsonl, name: rows, path: rows.jsonl, answer_field: solution}}",
        "label_key", "answer_key", "output_key", "solution_field", "target_key", "ground_truth_key", "label_field"),
    _is("tasks.dataset.verifier", 'tasks: {dataset: {kind: jsonl, name: rows, path: rows.jsonl, verifier: "./reward.py:grade"}}',
        "reward_funcs", "reward_func", "reward_function", "reward_fn", "custom_reward_function", "reward_fn_key",
        "reward_manager", "rewards", "grader_fn", "custom_rm_path", "reward_functions", "scorer"),
    _is("tasks.verifiers", 'tasks: {verifiers: [{kind: http, name: mine, url: "http://127.0.0.1:8000"}]}', "reward_model",
        "remote_rm_url", "reward_pretrain", "reward_url", "rm_url", "rm_type", "reward_model_path", "judge"),
    _is("tasks.prompt_format.system", "tasks: {prompt_format: {system: Be brief.}}", "system_prompt",
        "system_message", "system_prompt_file"),
    _is("tasks.prompt_format", "tasks: {prompt_format: {layout: auto}}", "apply_chat_template", "chat_template",
        "chat_template_kwargs", "prompt_template", "input_template", "use_chat_template"),
    _not("one prompt has one answer, without tools or turns of an environment", "multi_turn", "tools", "environment",
         "environments", "env", "envs", "environment_factory", "max_turns", "max_rollout_turns", "tool_config", "agent",
         "env_id", "tool_calling", "rollout_func", "max_tool_calling_iterations", "agent_func_path", "num_turns"),
    _not("completions are scored by their own verifier alone; let one function add its parts up", "reward_weights",
         "reward_scale", "reward_clip_range", "reward_shaping", "reward_clip", page="docs/verifiers.md"),
    # Budget, evaluation, checkpoints
    _is("budget.steps", "budget: {steps: 200}", "max_steps", "total_training_steps", "max_num_steps", "num_steps",
        "total_steps", "training_steps", "num_train_steps", "train_steps", "num_updates", "total_iterations"),
    _is("budget", "budget: {steps: 200}", "num_train_epochs", "total_epochs", "epochs", "num_epochs", "max_epochs",
        "num_episodes", "max_num_epochs", "total_episodes", "n_epochs"),
    _is("budget.device_hours", "budget: {device_hours: 8}", "gpu_hours", "max_time", "time_limit", "max_hours", "hours"),
    _is("tasks.evaluation.every_steps", "tasks: {evaluation: {every_steps: 10}}", "eval_steps", "test_freq",
        "val_period", "eval_interval", "eval_every", "eval.interval", "eval_strategy", "val_freq", "evaluation_strategy",
        "eval_freq", "eval_on_start", "val_before_train", "validation_interval", "evaluation.interval", "val_at_start"),
    _is("tasks.evaluation.rollouts_per_prompt", "tasks: {evaluation: {rollouts_per_prompt: 16}}", "num_generations_eval",
        "eval_n_samples_per_prompt", "val_kwargs.n", "eval.rollouts_per_example", "evaluation.n",
        "evaluation.num_samples"),
    _is("tasks.evaluation.num_prompts", "tasks: {evaluation: {num_prompts: 200}}", "val_batch_size", "eval_batch_size",
        "per_device_eval_batch_size", "max_val_samples", "num_eval_prompts", "max_eval_samples", "eval_size",
        "evaluation.size", "evaluation.num_examples", "eval.num_examples", "test_size", "val_size"),
    _is("trainer.checkpoint_every_steps", "trainer: {checkpoint_every_steps: 50}", "save_steps", "save_freq",
        "save_period", "save_interval", "checkpoint_interval", "ckpt.interval", "save_strategy", "checkpoint_every"),
    _is("trainer.keep_checkpoints", "trainer: {keep_checkpoints: 2}", "save_total_limit", "keep_top_k", "max_ckpt_num",
        "max_actor_ckpt_to_keep", "ckpt.keep", "keep_last"),
    _is("trainer.checkpoints", "trainer: {checkpoints: /data/checkpoints}", "ckpt_path", "checkpoint_dir",
        "checkpoint_path", "save_path", "ckpt_dir", "default_local_dir", "save_dir"),
    _is("folder", "folder: runs", "output_dir", "log_dir", "run_dir", "out_dir", "logging_dir"),
    _is("run", "run: my-run", "run_name", "experiment_name", "exp_name", "wandb_run_name"),
    _is("log", "log: [{kind: wandb}]", "report_to", "logger", "use_wandb", "wandb", "project_name", "wandb_project",
        "use_tensorboard", "tensorboard", "mlflow", "wandb_entity", "loggers", "trackers"),
    _not("rollcast up --config my-run.yaml --resume continues a run", "resume", "resume_from_checkpoint", "resume_mode",
         "load_checkpoint", "resume_from", "resume_path", "resume_step", page="docs/how-to/resume.md"),
    # Machines
    _is("local.trainer_ranks", "local: {trainer_ranks: 2}", "n_gpus_per_node", "num_gpus", "gpus_per_node", "nnodes",
        "num_nodes", "world_size", "nproc_per_node", "actor_num_gpus_per_node", "num_processes", "gpus", "n_gpus",
        "num_gpus_per_node", "trainer_gpus", "num_train_gpus", "trainer_gpu_ids", "actor_num_nodes", "dp_size",
        "data_parallel_size"),
    _is("local.generators", "local: {generators: 2}", "vllm_num_engines", "num_engines", "rollout_num_gpus",
        "num_inference_workers", "num_rollout_workers", "inference_gpus", "rollout_gpus", "num_generators",
        "num_infer_gpus", "inference_gpu_ids"),
    _is("generator.tensor_parallel", "generator: {tensor_parallel: 2}", "tensor_model_parallel_size",
        "vllm_tensor_parallel_size", "tensor_parallel_size", "tp", "tp_size", "rollout_num_gpus_per_engine"),
    _is("generator.gpu_memory_utilization", "generator: {gpu_memory_utilization: 0.8}", "gpu_memory_utilization",
        "vllm_gpu_memory_utilization", "gpu_mem_util"),
    _is("generator.slots", "generator: {slots: 256}", "max_num_seqs", "max_concurrency", "concurrency",
        "max_concurrent_rollouts", "max_concurrent_requests", "num_slots", "max_inflight_rollouts"),
    _is("trainer.activation_checkpointing", "trainer: {activation_checkpointing: true}", "gradient_checkpointing",
        "enable_gradient_checkpointing", "grad_checkpointing", "recompute", "activation_checkpoint", "ac"),
    _not("the trainer shards with FSDP2 and generators sample with vLLM, without settings of their own for it", "deepspeed",
         "fsdp", "fsdp_config", "zero_stage", "megatron", "sglang", "use_vllm", "vllm_mode", "ds_config", "strategy",
         "accelerate", "ray", "fsdp_size", "colocate_all_models", "colocate", "vllm_server_host", "hybrid_engine",
         "use_liger_kernel", "param_offload", "optimizer_offload", "adam_offload", "cpu_offload",
         "vllm_enable_sleep", "vllm_enable_sleep_mode", "free_cache_engine"),
    _not("the trainer has no context, sequence, pipeline or expert parallelism", "context_parallel_size", "cp",
         "sequence_parallel", "ulysses_sequence_parallel_size", "ring_attn_size", "pipeline_parallel_size", "pp",
         "expert_parallel_size", "ep", "sequence_parallel_size"),
)  # fmt: skip

_BY_NAME: dict[str, Counterpart] = {name: one for one in COUNTERPARTS for name in one.names}


def counterpart(field: str) -> Counterpart | None:
    """What the setting is here, by the longest end of its dotted name that is known; None if none is."""
    parts = [part.replace("-", "_").lower() for part in field.split(".") if not part.isdigit()]
    ends = (".".join(parts[start:]) for start in range(len(parts)))
    return next((_BY_NAME[end] for end in ends if end in _BY_NAME), None)


def names_within(field: str, value: Any, depth: int = MAX_DEPTH) -> Iterator[tuple[str, Counterpart]]:
    """The settings of an unknown group that are known names, each with its counterpart here."""
    if not isinstance(value, Mapping) or depth == 0:
        return
    for name, inner in value.items():
        inside = f"{field}.{name}"
        below = list(names_within(inside, inner, depth - 1))
        if below:
            yield from below
        elif (found := counterpart(inside)) is not None:
            yield inside, found

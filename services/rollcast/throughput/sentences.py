"""The prediction and its assumptions in words: one line each."""

from collections.abc import Iterator

from rollcast.memory.device import gigabytes
from rollcast.throughput.balance import Balance
from rollcast.throughput.ending import checkpoint_seconds, grace_seconds


def in_one_line(balance: Balance) -> str:
    """Idle shares of both sides, and what a step waits for."""
    trainer = balance.trainer
    # Shorter steps are printed with hundredths of a second
    digits = 0 if balance.step_seconds >= 10.0 else 2
    shared = "" if balance.gpu_idle is None else f", the GPU that they share {balance.gpu_idle:.0%}"
    return (
        f"predicted idle: trainer {balance.trainer_idle:.0%}, generators "
        f"{balance.generator_idle:.0%}{shared}; a step takes {balance.step_seconds:.{digits}f} s "
        f"(update {trainer.update_seconds:.{digits}f}, publishing "
        f"{trainer.publish_seconds:.{digits}f}, sampling {balance.sampling_seconds:.{digits}f}, "
        f"staleness bound {balance.window_seconds:.{digits}f}); nothing of it is measured on your "
        "machines"
    )


def assumption_lines(balance: Balance) -> Iterator[str]:
    """Each assumption with its unit and source."""
    trainer = balance.trainer
    generator = balance.generator
    inputs = trainer.assumptions
    recipe = trainer.plan.config.recipe
    lengths = trainer.lengths
    share = lengths.mean / recipe.max_completion_tokens
    peak = trainer.card.flops / 1e12
    yield (
        f"lengths: {lengths.mean:,.0f} tokens of a completion on average, {share:.0%} of "
        f"recipe.max_completion_tokens, and {lengths.cut_share:.1%} truncated; set --mean-tokens"
    )
    yield f"prompts: {trainer.prompt_tokens:,.0f} tokens on average"
    yield (
        f"groups without an advantage: {inputs.filtered_share:.0%}, sampled but not trained; set "
        "--filtered"
    )
    yield (
        f"trainer: MFU {trainer.utilization:.3f} of {peak:,.0f} TFLOP/s ({trainer.card.name}) on "
        f"{trainer.plan.ranks} GPUs, {trainer.tokens_per_second:,.0f} tokens/s; set --mfu"
    )
    yield (
        f"generators: {balance.generators} with {generator.plan.worker.slots} slots, "
        f"{generator.running:.0f} of them decoding, {generator.tokens_per_second:,.0f} tokens/s "
        f"each, at {inputs.bandwidth_share:.0%} of {trainer.card.bandwidth / 1e12:.2f} TB/s and "
        f"{1e3 * inputs.engine_step_seconds:.1f} ms + {1e6 * inputs.engine_rollout_seconds:.0f} us "
        "a rollout of the engine's own"
    )
    yield (
        f"KV cache: {generator.kv_share:.0%} full on average; rollouts are preempted in "
        f"{generator.preemption_share:.0%} of the time, and each costs "
        f"{generator.rebuild_seconds:.2f} s to rebuild"
    )
    yield (
        f"weights: {inputs.lane_bytes_per_second / 1e9:g} GB/s from each trainer rank, "
        f"{trainer.sending_seconds:.1f} s for {gigabytes(trainer.plan.trainer[0].version)}"
        f"{'; gloo, which a shared GPU uses, was not measured' if balance.shares_gpu else ''}"
    )
    yield (
        f"checkpoints: {inputs.checkpoint_bytes_per_second / 1e9:g} GB/s, "
        f"{checkpoint_seconds(balance):.0f} s each, so "
        f"that the trainer may need {grace_seconds(balance)} s after SIGTERM"
    )


def full_cache(balance: Balance) -> Iterator[str]:
    """One sentence if the slots hold more than the KV cache does, on average."""
    generator = balance.generator
    # Average share of the KV cache from which vLLM preempts so often that fewer slots are as fast.
    # Chosen.
    max_kv_share = 0.9
    if generator.kv_share <= max_kv_share:
        return
    worker = generator.plan.worker
    group = generator.plan.config.recipe.most_rollouts_per_prompt
    enough = int(worker.slots * max_kv_share / generator.kv_share)
    lack = (
        f"generator.slots = {worker.slots}: running rollouts of {generator.running_tokens:,} "
        "tokens on average fill "
        f"the KV cache to {generator.kv_share:.0%}, so that vLLM preempts often"
    )
    if enough >= group:
        yield f"{lack}; set it to {enough}"
    else:
        yield (
            f"{lack}, and the {group} rollouts of one prompt need as many slots; raise "
            "generator.tensor_parallel"
        )

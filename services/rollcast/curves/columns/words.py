"""The names and words by which columns are known."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


COMPUTE_NAMES = (
    "compute_device_hours", "compute", "device_hours", "gpu_hours", "gpu_hours_excl_eval"
)  # fmt: skip
EVALUATION_NAMES = ("pass_rate", "accuracy", "score", "eval_acc", "eval_accuracy", "eval_reward")
PASS_RATE_NAMES = (*EVALUATION_NAMES, "reward", "mean_reward")
"""The last two may be of training."""
STANDARD_ERROR_NAMES = ("standard_error", "stderr")
ERROR_PREFIX = "standard error of "
"""Begins the name of the column with the errors of a ratio."""
TRUNCATION_NAMES = ("truncation_ratio", "truncation_rate", "truncated")
STEP_NAMES = (
    "global_step", "train/global_step", "trainer/global_step", "training/global_step",
    "training_step", "step", "train_step", "iteration", "iter", "update", "_step",
)  # fmt: skip
"""Names of the optimizer step, in the order in which they are looked for; W&B's own counter of
calls last."""
CALL_COUNTER = "_step"
"""W&B counts its calls of `log` under this name, often several of them a step."""
EPOCH_NAMES = ("epoch", "train/epoch")
TIME_NAMES = (
    "_runtime", "runtime", "elapsed", "elapsed_seconds", "_timestamp", "timestamp", "wall_time",
    "time",
)  # fmt: skip
NUMBERED_LABELS = ("seed", "run_id", "trial", "trial_id", "fold", "repeat", "replicate")
"""Columns that distinguish runs although they hold numbers."""
LABELS = ("dataset", "metric")
"""Columns that distinguish curves however often their values recur."""

COUNTED_WORDS = _words(
    "step steps iteration iterations iter iters update updates timestep timesteps batch batches"
)
COUNTER_WORDS = _words(
    "global train training trainer optimizer optim opt eval evaluation val validation test grpo "
    "ppo rl rloo dapo policy actor critic learner index idx number no n num id current cur "
    "gradient completed done rollout outer progress total env sampled trained lifetime agent "
    "counter count"
)
"""Next to a counted word these make the name of a counter, `grpo_step`, `batch_index`; its values
must rise."""
STATISTIC_WORDS = _words(
    "avg average mean max min std median length len remaining left eta limit target budget planned"
)
"""A counter with one of these does not count the run: `mean_steps`, `steps_left`."""
CLOCK_WORDS = _words("timestamp date datetime wall clock created at")
"""Words of a moment, which also counts pauses; a duration counts from the start of the run."""

HELD_OUT_WORDS = _words(
    "eval evals evaluation evaluations val vals valid validation validations test heldout held "
    "holdout dev benchmark"
)
EVALUATION_WORDS = _words("eval evaluation val validation test")
TRAINING_WORDS = _words("train training trainer")
STAGE_WORDS = HELD_OUT_WORDS | TRAINING_WORDS
ACCURACY_WORDS = _words(
    "acc accuracy accuracies pass passed passrate correct correctness solved solve success "
    "successes successful successrate em match win winrate wins"
)
SCORE_WORDS = _words("score scores")
REWARD_WORDS = _words("reward rewards rew rews")
RETURN_WORDS = _words("return returns")
OTHER_WORDS = _words(
    "std stdev sd stderr error errors var variance min max median range loss kl length lengths "
    "len entropy grad norm lr count counts num n number clip clipped format turns runtime second "
    "seconds time timing tokens samples filter filtering aux advantage advantages baseline zero "
    "weight weights coef coeff coefficient alpha beta gamma factor multiplier penalty margin "
    "margins steps response truncated ci bonus token threshold gap step diff delta fail failed "
    "failure failures incorrect wrong unsolved invalid mismatch chosen rejected trivially trivial "
    "target initial previous prev schedule scale cap config hparams args params forward backward "
    "hist histogram quantile percentile cost fps prob probs logprob logprobs ref reference oracle "
    "router discriminator tool tools call calls json preference rm positive negative temperature "
    "memory timeout id version seed"
)
"""Words of a column that does not measure success, or only its spread, its weight or a count."""
OTHERS_JUDGED = ({"reward", "model"}, {"value"})
"""Next to a word of accuracy: how well a reward model or a critic judges, not how well the policy
answers."""
NEUTRAL_WORDS = _words(
    "mean avg average overall total sum all macro micro core fn func function functions rate ratio "
    "value values raw critic rollout rollouts env envs environment runners sampler results episode "
    "episodic episodes ep batch group groups policy actor agent objective metric metrics stats log "
    "logs verifiable verifier verified answer answers outcome task tasks current percent pct "
    "percentage in of at per greedy sampled sample prompt prompts default main fraction frac share "
    "exact epoch this iter grpo ppo rl model th k set best maj majority worst data dataset eval "
    "moving running ema smoothed gen generation final full"
)
"""Words that name no subject: how it was averaged, who measured it."""
SUBJECTLESS_WORDS = (
    STAGE_WORDS | ACCURACY_WORDS | SCORE_WORDS | REWARD_WORDS | RETURN_WORDS | NEUTRAL_WORDS
)
RATE_WORDS = _words(
    "rate ratio acc accuracy accuracies mean avg average fraction frac share percent pct "
    "percentage passrate successrate winrate"
)
"""A measure with one of these is no count, however large its values."""
SHARE_WORDS = _words("ratio fraction frac share")
PER_CENT_WORDS = _words("percent pct percentage")
GROUP_WORDS = _words("all none partial some any every mixed too zero")
"""Next to a word of accuracy: the share of groups whose attempts are all alike, as `solve_none`
is."""
DATA_SET_WORDS = _words(
    "aime amc math gsm minerva olympiad olympiadbench humaneval mbpp livecodebench lcb gpqa mmlu "
    "countdown arc hellaswag bbh ifeval code codeforces webshop alfworld"
)
"""Names of benchmarks; any word with a digit in it counts as one too."""
EXTREME_WORDS = _words("best worst highest top")
"""Without a number of attempts this is the best evaluation so far, not the newest one."""
SMOOTHED_WORDS = _words("ema smoothed moving running")
TRAINING_STATISTICS = _words(
    "lr learning clipfrac clip ratio util utilization usage mfu gpu progress cpu eta epsilon eps "
    "dropout warmup sampling approx frac"
)
"""Words of columns next to the reward of training that are no evaluations."""

COUNT_WORDS = _words("num n number count counts total of the")
"""Words of a column that counts right answers: `num_correct`, `total_wins`."""
TOTAL_WORDS = _words(
    "total n num number count games game episodes episode samples problems questions tasks trials "
    "attempts examples prompts rollouts evaluated played size rounds matches answers completions "
    "cases tests"
)
FAILURE_WORDS = _words("fail fails failed failure failures losses lost incorrect wrong unsolved")
DRAW_WORDS = _words("draw draws drawn tie ties tied")
ITEM_WORDS = _words(
    "word question prompt problem game episode opponent instance sample answer item puzzle level "
    "map id target secret goal task completion"
)
"""Words of a column that names a game or a question, and not a data set with a curve of its own."""

"""Every key of wire 1, for one run."""

GENERATORS = "generators"
"""Consumer group on the task streams; a consumer is a generator's name."""
TRAINER = "trainer"
"""Consumer group on the rollout stream, and its only consumer."""


class Keys:
    """Key names. The braces are literal: a Redis cluster then keeps a run on one node, as the
    scripts need.

    tasks     stream   tasks for training that are waiting or claimed (group `generators`)
    evals     stream   the same for evaluation, apart so that generators can prefer them
    rollouts  stream   finished groups until they are removed (group `trainer`)
    inflight  hash     task sequence -> its state (rollcast.rollouts.index); removed with the task
    dead      stream   tasks given up and useless entries, each with the reason; about the newest
                       thousand
    state     hash     incarnation, counters, fenced generators, and the values that the trainer
                       stores
    """

    def __init__(self, run: str, scope: str = "") -> None:
        """`scope`: redis.scope, whose runs alone share these names.

        No run has a `/` in its name.
        """
        prefix = f"rollcast:{{{f'{scope}/' if scope else ''}{run}}}:"
        self.pattern = f"{prefix}*"
        """Glob pattern of all keys of the run, for Redis ACLs."""
        self.tasks = prefix + "tasks"
        self.evals = prefix + "evals"
        self.rollouts = prefix + "rollouts"
        self.inflight = prefix + "inflight"
        self.dead = prefix + "dead"
        self.state = prefix + "state"

    @property
    def all(self) -> tuple[str, ...]:
        """Every key, in the order in which the scripts take them."""
        return (self.tasks, self.evals, self.rollouts, self.inflight, self.dead, self.state)

    @property
    def consumer_groups(self) -> tuple[tuple[str, str], ...]:
        """Each stream that is read by consumers, with their group."""
        return ((self.tasks, GENERATORS), (self.evals, GENERATORS), (self.rollouts, TRAINER))

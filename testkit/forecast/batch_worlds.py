"""Training under many splits of a step, with a known truth: what IsoCompute (arXiv 2603.12151)
reports, at random.

Each split follows a sigmoid. More rollouts of a prompt move its bend to more compute and raise its
asymptote, less and less, up to a number from which it falls again. More prompts move the bend
either way and hardly touch the asymptote. None of this is a parabola in ln n.
"""

import math
from dataclasses import dataclass

import numpy as np

from rollcast.scaling.law.batch_shape import BatchShape
from rollcast.scaling.law.curve import Array, Curve, sigmoid

BASE = BatchShape(8, 64)
"""Split whose bend is at compute 1."""


@dataclass(frozen=True)
class BatchWorld:
    """The pass rate of every split at every compute.

    Attributes:
        lost: asymptote that 8 rollouts of a prompt lack, compared with infinitely many.
        catch_up: power of n with which that loss vanishes.
        overfit: asymptote lost for each unit of ln n beyond `saturation`.
        delay, delay_of_prompts: powers of n and P with which the bend moves.
        gain_of_prompts: asymptote for each unit of ln P.
    """

    initial: float
    asymptote: float
    exponent: float
    lost: float
    catch_up: float
    overfit: float
    saturation: float
    delay: float
    delay_of_prompts: float
    gain_of_prompts: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "BatchWorld":
        initial = rng.uniform(0.1, 0.4)
        return cls(
            initial=initial,
            asymptote=rng.uniform(initial + 0.15, 0.9),
            exponent=rng.uniform(0.8, 1.8),
            lost=rng.uniform(0.0, 0.12),
            catch_up=rng.uniform(0.2, 0.8),
            overfit=rng.uniform(0.0, 0.02),
            saturation=2.0 ** rng.uniform(5, 9),
            delay=rng.uniform(0.3, 1.0),
            delay_of_prompts=rng.uniform(-0.3, 0.5),
            gain_of_prompts=rng.normal(0.0, 0.005),
        )

    def pass_rate(self, batch_shape: BatchShape, compute: float | Array) -> Array:
        wider = batch_shape.rollouts / BASE.rollouts
        more = batch_shape.prompts / BASE.prompts
        asymptote = (
            self.asymptote - self.lost * wider**-self.catch_up + self.gain_of_prompts * np.log(more)
        )
        asymptote -= self.overfit * max(0.0, np.log(batch_shape.rollouts / self.saturation))
        midpoint = wider**self.delay * more**self.delay_of_prompts
        return sigmoid(compute, self.initial, asymptote, self.exponent, midpoint)

    def slope(self, batch_shapes: list[BatchShape], compute: float) -> float:
        """dR / d ln C on average."""
        ends = [
            self.pass_rate(batch_shape, np.array([compute / 1.2, compute * 1.2]))
            for batch_shape in batch_shapes
        ]
        rise = float(np.mean([high - low for low, high in ends]))
        return max(0.0, rise / (2.0 * math.log(1.2)))

    def curve(
        self, batch_shape: BatchShape, last: float, rng: np.random.Generator, shift: float = 0.0
    ) -> Curve:
        """30 evaluations up to compute `last`, each with a noise of 0.008; the run strays by
        `shift` from its split.
        """
        compute = np.geomspace(last / 60, last, 30)
        rate = self.pass_rate(batch_shape, compute)
        share_of_rise = (rate - self.initial) / (self.asymptote - self.initial)
        noise = 0.008 * rng.standard_normal(compute.size)
        return Curve.from_points(
            compute, np.clip(rate + shift * share_of_rise + noise, 0.0, 1.0), name=batch_shape.name
        )

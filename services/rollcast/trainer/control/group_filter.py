"""The recipe's own filter, asked once about each group.

A group is decided on when it comes back, up to three times: for the count of useful groups, for a
refill, and for a teacher. The batch decides again. A filter need not answer twice the same, so its
first answer stays.
"""

from weakref import WeakKeyDictionary

from rollcast.config.recipe import Recipe
from rollcast.recipe.custom_functions import GroupRecord, custom_filter
from rollcast.rollouts.records import RolloutGroup


class GroupFilter:
    """Remembers the answer for as long as the group exists.

    A recipe without a filter of its own keeps all.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._filter_part = recipe.filter
        self._answers: WeakKeyDictionary[RolloutGroup, bool] = WeakKeyDictionary()

    def keeps(self, group: RolloutGroup, record: GroupRecord) -> bool:
        """`record`: of the group's rollouts that count."""
        if self._filter_part is None:
            return True
        if group not in self._answers:
            self._answers[group] = custom_filter(self._filter_part, record)
        return self._answers[group]

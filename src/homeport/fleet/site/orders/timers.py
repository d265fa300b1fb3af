"""How long a site's orders have been out, and how long their changes have taken so far. Times are on the monotonic
clock; after a restart an order counts as sent at that moment, and the time spent before is kept."""

from collections.abc import Iterable, Mapping
from dataclasses import field

from homeport.core.lifecycle.deployment import IN_FLIGHT
from homeport.core.model.instance import Instance
from homeport.core.reconcile.deadline import spent_after
from homeport.core.reconcile.instances import Instances, Key
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Generation


@dataclass(slots=True)
class OrderTimers:
    asked: dict[Key, tuple[Generation, float]] = field(default_factory=dict)
    """The outstanding order of each instance, and since when."""
    spent: dict[Key, float] = field(default_factory=dict)
    """The time each change took before its outstanding order; zeros are left out."""

    def look(self, instances: Iterable[Instance], moment: float) -> None:
        """Starts the timers of outstanding orders without one."""
        for instance in instances:
            if instance.state not in IN_FLIGHT:
                self.asked.pop(instance.key, None)
            elif self.asked.get(instance.key, (None, 0.0))[0] != instance.generation:
                self.asked[instance.key] = instance.generation, moment

    def outstanding(self, instances: Instances, moment: float) -> list[Instance]:
        """The instances with an outstanding order. The timer of one that is gone or settled ends."""
        self.asked = {key: asked for key, asked in self.asked.items() if key in instances.unsettled}
        self.look((instances[key] for key in instances.unsettled), moment)
        return [instances[key] for key in self.asked]

    def waited(self, instance: Instance, moment: float) -> float:
        """How long the order of this instance has been out."""
        generation, since = self.asked.get(instance.key, (None, 0.0))
        return moment - since if generation == instance.generation else 0.0

    def spent_by(self, instance: Instance, moment: float) -> float:
        """The time its change has taken, including the outstanding order."""
        return self.spent.get(instance.key, 0.0) + self.waited(instance, moment)

    def after(self, before: Mapping[Key, Instance], changed: Iterable[Instance], moment: float) -> dict[Key, float]:
        """The time spent once these instances are recorded."""
        spent = dict(self.spent)
        for instance in changed:
            key, known = instance.key, before.get(instance.key)
            elapsed = 0.0 if known is None else self.waited(known, moment)
            seconds = spent_after(spent.pop(key, 0.0), known, instance, elapsed)
            if seconds > 0:
                spent[key] = seconds
        return spent

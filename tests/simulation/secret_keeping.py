"""Secrets: set, changed and removed at central, while apps come and go that use them."""

from homeport.core.model.access import SecretRecord
from homeport.errors import HomeportError, TransientError
from homeport.vocabulary import SiteName
from tests.simulation.people import ANN
from tests.simulation.scenario import SECRETS, Scenario, Story
from tests.simulation.world import UNCERTAIN

JOINED_SECONDS = 2.0
VALUES = ("tea", "milk", "sugar", "lemon")


def set_secret(scenario: Scenario) -> None:
    _set(scenario, *_any(scenario))


def change_one(scenario: Scenario) -> None:
    """One that is in use, if any is."""
    nodes = scenario.world.nodes.values()
    used = {
        (node.site.site, name) for node in nodes for held in node.machine.containers.values() for name in held.secrets
    }
    known = sorted(used) or sorted(scenario.world.central.disk.tables.secrets)
    if known:
        _set(scenario, *scenario.chance.choice(known))


def prepare(scenario: Scenario) -> None:
    """Somebody sets most of them as soon as the sites have joined."""

    async def begin() -> None:
        for site in sorted(scenario.world.sites):
            for name in SECRETS:
                if scenario.chance.random() < 0.8:
                    _set(scenario, site, name)

    scenario.later(JOINED_SECONDS, begin)


def _set(scenario: Scenario, site: SiteName, name: str) -> None:
    value = f"{scenario.chance.choice(VALUES)}-{scenario.chance.randint(1, 9)}"
    word = _Word(scenario, site, name, value)

    def done(_record: SecretRecord) -> None:
        word.done()

    scenario.people.at_central(
        f"set-secret {name} of {site} to {value}",
        lambda core: core.secrets.set(site, name, value, ANN),
        done,
        word.refused,
    )


def remove_secret(scenario: Scenario) -> None:
    site, name = _any(scenario)
    word = _Word(scenario, site, name, None)
    scenario.people.at_central(
        f"remove-secret {name} of {site}",
        lambda core: core.secrets.remove(site, name, ANN),
        lambda _: word.done(),
        word.refused,
    )


class _Word:
    """What is said last stands; where central died over it nobody knows."""

    def __init__(self, scenario: Scenario, site: SiteName, name: str, value: str | None) -> None:
        self._secrets, self._key, self._value = scenario.world.secrets, (site, name), value

    def done(self) -> None:
        self._secrets[self._key] = self._value

    def refused(self, error: HomeportError) -> None:
        if isinstance(error, TransientError):
            self._secrets[self._key] = UNCERTAIN


def _any(scenario: Scenario) -> tuple[SiteName, str]:
    return scenario.chance.choice(sorted(scenario.world.sites)), scenario.chance.choice(SECRETS)


STORY = Story(
    sites=(1, 1, 2),
    nodes=(1, 2, 2),
    apps=(1, 2, 3),
    uses_secrets=True,
    prepare=prepare,
    late=change_one,
    actions=((set_secret, 40), (remove_secret, 8)),
)

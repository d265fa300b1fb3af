// What needs a person, read once for the number beside Overview and for the page itself, so that both say the same.
import { getContext, setContext } from 'svelte';
import { Live } from './live.svelte';
import { session } from './session.svelte';
import { clock } from './time.svelte';
import type { Hold, Identity, Node, Overview, Rollout } from './types';

const LISTED_MAX = 50, SITES_MAX = 500;
const SOON_MILLISECONDS = 3_600_000;
const KEY = Symbol('what needs a person');
const whenIn = (path: string) => () => (session.who ? path : null);

export class Needs {
	readonly overview = new Live<Overview>(whenIn('/api/v1/overview'));
	readonly #stopped = new Live<{ rollouts: Rollout[] }>(whenIn(`/api/v1/rollouts?state=stopped&limit=${LISTED_MAX}`));
	readonly #drained = new Live<{ nodes: Node[] }>(whenIn(`/api/v1/nodes?filter=state:drained&limit=${LISTED_MAX}`));
	readonly #sites = new Live<{ sites: { name: string; holds: Hold[] }[] }>(whenIn(`/api/v1/sites?fields=name,holds&limit=${SITES_MAX}`));
	readonly #pending = new Live<{ identities: Identity[] }>(() => (session.isFleetAdmin ? `/api/v1/identities?standing=pending&limit=${LISTED_MAX}` : null));
	/** Machines that ask to join. A site asks for its authority as well, which the same decision covers. */
	readonly pending: Identity[] = $derived.by(() => (this.#pending.data?.identities ?? []).filter((each) => each.kind !== 'site-authority'));
	readonly stopped: Rollout[] = $derived.by(() => this.#stopped.data?.rollouts ?? []);
	readonly drained: Node[] = $derived.by(() => this.#drained.data?.nodes ?? []);
	readonly #holds: Hold[] = $derived.by(() => (this.#sites.data?.sites ?? []).flatMap((site) => site.holds));
	/** Holds that end within the hour. */
	readonly ending: Hold[] = $derived.by(() => (this.#holds.length ? this.#holds.filter((hold) => new Date(hold.expires_at).getTime() - clock.now < SOON_MILLISECONDS) : []));
	/** Of everything, also of what is not listed. */
	readonly count: number = $derived.by(() => Object.values(this.overview.data?.attention_counts ?? {}).reduce((sum, count) => sum + count, 0) + this.stopped.length + this.pending.length + this.drained.length + this.ending.length);

	static provide(): Needs {
		return setContext(KEY, new Needs());
	}
	static get(): Needs {
		return getContext<Needs>(KEY);
	}
}

// What a part of the page shows: asked for when its address changes, asked again when something has happened, or every
// so often where no event tells. What was shown stays while it is asked again, and when that fails. An answer that took
// long is asked for less often, and nothing is asked while the page is hidden: a page may stay open for weeks.
import { ask, Problem } from './api';
import { feed } from './feed.svelte';

const REST = 10;
/** Between two answers, at least this many times as long as the last one took. */
const REST_MILLISECONDS_MAX = 15_000;
/** After an answer that was lost on its way, or that the server could not give. */
const RETRY_MILLISECONDS = 2_000;

/** The items of a list stand under `key`; its pages are asked for until there are `max` of them. */
interface Pages { readonly key: string; readonly max: number }
/** As many as are shown, until somebody asks for more: all of them are asked for again when something happens. */
export class Growing implements Pages {
	max = $state(0);
	constructor(readonly key: string, readonly step: number) {
		this.max = step;
	}
	more = () => { this.max += this.step; };
}

export class Live<T> {
	data = $state.raw<T | undefined>();
	problem = $state<Problem | undefined>();
	#asked = '';
	#most = 0;
	#turn = 0;
	#isBusy = false;
	#earliest = 0;
	#due: ReturnType<typeof setTimeout> | null = null;

	#whole: Pages | null;

	/** `seconds`: how long until it is asked again by itself; null for never. `whole`: further pages of the list are asked for too. */
	constructor(path: () => string | null, seconds: () => number | null = () => null, whole: Pages | null = null) {
		this.#whole = whole;
		$effect(() => {
			const wanted = path();
			void feed.changes;
			void whole?.max;
			if (wanted) this.#reload(wanted);
		});
		$effect(() => {
			const [wanted, pause] = [path(), seconds()];
			if (!wanted) return;
			const timer = pause === null ? undefined : setInterval(() => { if (feed.lostAt === null) this.#reload(wanted); }, pause * 1000);
			const back = () => { if (!document.hidden) this.#reload(wanted); };
			document.addEventListener('visibilitychange', back);
			return () => {
				clearInterval(timer);
				document.removeEventListener('visibilitychange', back);
			};
		});
		$effect(() => () => { if (this.#due) clearTimeout(this.#due); });
	}
	#reload(path: string): void {
		const most = this.#whole?.max ?? 0;
		if (path !== this.#asked || most > this.#most) {
			if (this.#due) clearTimeout(this.#due);
			if (path !== this.#asked) this.data = undefined;
			[this.#asked, this.#most, this.#due] = [path, most, null];
			void this.#load(path);
			return;
		}
		if (document.hidden || this.#due) return;
		const pause = this.#earliest - Date.now();
		if (!this.#isBusy && pause <= 0) void this.#load(path);
		else this.#due = setTimeout(() => { this.#due = null; if (this.#asked === path) this.#reload(path); }, Math.max(pause, 100));
	}
	async #load(path: string): Promise<void> {
		const began = Date.now(), turn = (this.#turn += 1);
		let isLost = false;
		this.#isBusy = true;
		try {
			const found = this.#whole ? await pages<T>(path, this.#whole) : await ask<T>(path);
			if (this.#turn === turn) [this.data, this.problem] = [found, undefined];
		} catch (error) {
			if (this.#turn === turn && error instanceof Problem) [this.problem, isLost] = [error, error.isLost];
		}
		// What was asked since then counts.
		if (this.#turn !== turn) return;
		this.#isBusy = false;
		this.#earliest = Date.now() + Math.min((Date.now() - began) * REST, REST_MILLISECONDS_MAX);
		// Without an event nothing else would ask again.
		if (isLost && !this.#due) this.#due = setTimeout(() => { this.#due = null; if (this.#asked === path) this.#reload(path); }, RETRY_MILLISECONDS);
	}
}

async function pages<T>(path: string, { key, max }: Pages): Promise<T> {
	const found = await ask<Record<string, unknown>>(path);
	const items = found[key] as unknown[];
	while (found.next && items.length < max) {
		const page = await ask<Record<string, unknown>>(`${path}${path.includes('?') ? '&' : '?'}cursor=${encodeURIComponent(found.next as string)}`);
		items.push(...(page[key] as unknown[]));
		found.next = page.next;
	}
	return found as T;
}

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

export class Live<T> {
	data = $state.raw<T | undefined>();
	problem = $state<Problem | undefined>();
	#asked = '';
	#isBusy = false;
	#earliest = 0;
	#due: ReturnType<typeof setTimeout> | null = null;

	#whole: { key: string; max: number } | null;

	/** `seconds`: how long until it is asked again by itself; null for never. `whole`: further pages of the list `key` are asked for too, up to `max` items. */
	constructor(path: () => string | null, seconds: () => number | null = () => null, whole: { key: string; max: number } | null = null) {
		this.#whole = whole;
		$effect(() => {
			const wanted = path();
			void feed.changes;
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
		if (path !== this.#asked) {
			if (this.#due) clearTimeout(this.#due);
			[this.data, this.#asked, this.#due] = [undefined, path, null];
			void this.#load(path);
			return;
		}
		if (document.hidden || this.#due) return;
		const pause = this.#earliest - Date.now();
		if (!this.#isBusy && pause <= 0) void this.#load(path);
		else this.#due = setTimeout(() => { this.#due = null; if (this.#asked === path) this.#reload(path); }, Math.max(pause, 100));
	}
	async #load(path: string): Promise<void> {
		const began = Date.now();
		let isLost = false;
		this.#isBusy = true;
		try {
			const found = this.#whole ? await pages<T>(path, this.#whole) : await ask<T>(path);
			if (this.#asked === path) [this.data, this.problem] = [found, undefined];
		} catch (error) {
			if (this.#asked === path && error instanceof Problem) [this.problem, isLost] = [error, error.isLost];
		}
		if (this.#asked !== path) return;
		this.#isBusy = false;
		this.#earliest = Date.now() + Math.min((Date.now() - began) * REST, REST_MILLISECONDS_MAX);
		// Without an event nothing else would ask again.
		if (isLost && !this.#due) this.#due = setTimeout(() => { this.#due = null; if (this.#asked === path) this.#reload(path); }, RETRY_MILLISECONDS);
	}
}

async function pages<T>(path: string, { key, max }: { key: string; max: number }): Promise<T> {
	const found = await ask<Record<string, unknown>>(path);
	const items = found[key] as unknown[];
	while (found.next && items.length < max) {
		const page = await ask<Record<string, unknown>>(`${path}${path.includes('?') ? '&' : '?'}cursor=${encodeURIComponent(found.next as string)}`);
		items.push(...(page[key] as unknown[]));
		found.next = page.next;
	}
	return found as T;
}

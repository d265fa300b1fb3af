// What a part of the page shows: asked for when its address changes, asked again when something has happened, or every
// so often where no event tells. What was shown stays while it is asked again, and when that fails. An answer that took
// long is asked for less often, and nothing is asked while the page is hidden: a page may stay open for weeks.
import { ask, Problem } from './api';
import { feed } from './feed.svelte';

const REST = 10;
/** Between two answers, at least this many times as long as the last one took. */
const REST_MILLISECONDS_MAX = 15_000;

export class Live<T> {
	data = $state.raw<T | undefined>();
	problem = $state<Problem | undefined>();
	#asked = '';
	#isBusy = false;
	#earliest = 0;
	#due: ReturnType<typeof setTimeout> | null = null;

	/** `seconds`: how long until it is asked again by itself; null for never. */
	constructor(path: () => string | null, seconds: () => number | null = () => null) {
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
		this.#isBusy = true;
		try {
			const found = await ask<T>(path);
			if (this.#asked === path) [this.data, this.problem] = [found, undefined];
		} catch (error) {
			if (this.#asked === path && error instanceof Problem) this.problem = error;
		}
		if (this.#asked !== path) return;
		this.#isBusy = false;
		this.#earliest = Date.now() + Math.min((Date.now() - began) * REST, REST_MILLISECONDS_MAX);
	}
}

// The changes of state of deployments, oldest first. A history only grows, so that its last page alone is asked for again.
import { untrack } from 'svelte';
import { ask, asked, Problem } from './api';
import { feed } from './feed.svelte';
import type { Deployment, HistoryEntry } from './types';

const PAGE = 500;
const PAUSE_MILLISECONDS = 3000;
/** So many deployments of a node are marked in its charts: those that changed last. */
const MARKED_MAX = 30;

/** What is known of one history; each reading goes on where the last full page ended. */
class Tail {
	#whole: HistoryEntry[] = [];
	#cursor: string | null = null;
	async read(name: string): Promise<HistoryEntry[]> {
		for (;;) {
			const page = await ask<{ history: HistoryEntry[]; next?: string | null }>(`/api/v1/deployments/${encodeURIComponent(name)}/history`, { limit: PAGE, cursor: this.#cursor });
			if (!page.next) return [...this.#whole, ...page.history];
			this.#whole.push(...page.history);
			this.#cursor = page.next;
		}
	}
}

/** Of one deployment, kept up to date while something happens. */
export class History {
	entries = $state.raw<HistoryEntry[]>([]);
	isLoaded = $state(false);
	problem = $state<Problem | undefined>();
	#name: string | null = null;
	#tail = new Tail();
	#isBusy = false;
	#earliest = 0;
	#due: ReturnType<typeof setTimeout> | undefined;
	#isOpen = true;

	constructor(name: () => string | null) {
		$effect(() => {
			const wanted = name();
			void feed.changes;
			untrack(() => this.#want(wanted));
		});
		$effect(() => () => { clearTimeout(this.#due); this.#isOpen = false; });
	}
	#want(name: string | null): void {
		if (name !== this.#name) {
			clearTimeout(this.#due);
			[this.#name, this.#tail, this.#isBusy, this.#earliest, this.#due] = [name, new Tail(), false, 0, undefined];
			[this.entries, this.isLoaded, this.problem] = [[], false, undefined];
		}
		if (name === null || this.#due) return;
		const pause = this.#earliest - Date.now();
		if (!this.#isBusy && pause <= 0) void this.#load(name);
		else this.#due = setTimeout(() => { this.#due = undefined; this.#want(this.#name); }, Math.max(pause, 200));
	}
	async #load(name: string): Promise<void> {
		this.#isBusy = true;
		const tail = this.#tail;
		try {
			const found = await asked(() => tail.read(name), () => tail === this.#tail && this.#isOpen);
			if (tail === this.#tail) [this.entries, this.isLoaded, this.problem] = [found, true, undefined];
		} catch (error) {
			if (tail === this.#tail && error instanceof Problem) this.problem = error;
		}
		if (tail === this.#tail) [this.#isBusy, this.#earliest] = [false, Date.now() + PAUSE_MILLISECONDS];
	}
}

/** A moment at which something was deployed, taken back or failed on a node. */
export interface DeployMark { at: number; tone: string; text: string; why: string; href: string }

const MARKED: Record<string, { tone: string; word: string }> = {
	INSTALLING: { tone: 'still', word: '' }, UPDATING: { tone: 'still', word: '' }, ROLLINGBACK: { tone: 'warn', word: 'back' }, FAILED: { tone: 'bad', word: 'failed' }, DELETING: { tone: 'going', word: 'removed' }
};

/** The deploy marks of a node's charts. A deployment is asked about again when it has changed. */
export class DeployMarks {
	shown = $state.raw<DeployMark[]>([]);
	#known = new Map<string, { version: string; tail: Tail; marks: DeployMark[] }>();
	#isBusy = false;
	#isOpen = true;

	constructor(node: () => { id: string; from: string; deployments: readonly Deployment[] } | null) {
		$effect(() => {
			const wanted = node();
			if (wanted) untrack(() => void this.#load(wanted.id, wanted.from, wanted.deployments));
		});
		$effect(() => () => { this.#isOpen = false; });
	}
	async #load(node: string, from: string, deployments: readonly Deployment[]): Promise<void> {
		if (this.#isBusy) return;
		this.#isBusy = true;
		const recent = deployments.filter((item) => item.updated_at >= from).toSorted((one, other) => other.updated_at.localeCompare(one.updated_at)).slice(0, MARKED_MAX);
		for (const item of recent) {
			const known = this.#known.get(item.id) ?? { version: '', tail: new Tail(), marks: [] };
			if (known.version === item.updated_at) continue;
			try {
				const entries = await asked(() => known.tail.read(item.id), () => this.#isOpen);
				this.#known.set(item.id, { version: item.updated_at, tail: known.tail, marks: marksOf(item, entries.filter((entry) => entry.node_id === node)) });
			} catch {
				// The charts are there without it; it is asked for again with the next window.
			}
		}
		const start = new Date(from).getTime() / 1000;
		this.shown = recent.flatMap((item) => this.#known.get(item.id)?.marks ?? []).filter((mark) => mark.at >= start).toSorted((one, other) => one.at - other.at);
		this.#isBusy = false;
	}
}

function marksOf(item: Deployment, entries: readonly HistoryEntry[]): DeployMark[] {
	// Another attempt at the same release is not another deploy.
	const counted = entries.filter((entry) => entry.after in MARKED && !entry.trigger.startsWith('retried'));
	return counted.map((entry) => {
		const { tone, word } = MARKED[entry.after]!;
		const version = entry.revision === item.revision ? item.app_version : (/ (\S+) is wanted here/.exec(entry.reason)?.[1] ?? '');
		return { at: new Date(entry.at).getTime() / 1000, tone, text: [item.name, word || version].filter(Boolean).join(' '), why: `${entry.before} → ${entry.after}: ${entry.reason}`, href: `/deployments/${item.site}/${item.name}?tab=history` };
	});
}

// Log lines as they are shown: a page of the newest, then the stream from there on, resumed after the last line. While
// paused, new lines wait; what was removed before it could be read is a gap with its size.
import { address, ask, open, Problem, type Query } from './api';
import { frames } from './sse';
import { whileShown } from './visible';
import type { HistoryEntry, LogLine, LogLines } from './types';

export type Row = { kind: 'line'; key: string; line: LogLine } | { kind: 'gap'; key: string; missed: number } | { kind: 'note'; key: string; text: string } | { kind: 'change'; key: string; entry: HistoryEntry };
const LINES_MAX = 20_000;
const PAGE = 500;
const PAUSES_SECONDS = [1, 2, 4, 8, 15];
const PAINT_MILLISECONDS = 250;

export class Logs {
	rows = $state.raw<Row[]>([]);
	held = $state.raw<Row[]>([]);
	isPaused = $state(false);
	isLive = $state(false);
	isLoaded = $state(false);
	problem = $state<Problem | undefined>();
	older = $state<string | null>(null);
	#query: Query = {};
	#stop: AbortController | null = null;
	#lastId = '';
	#fresh: Row[] = [];
	#due: ReturnType<typeof setTimeout> | null = null;
	#notes = 0;

	start(query: Query, follow: boolean): void {
		this.stop();
		this.#query = query;
		[this.rows, this.held, this.older, this.problem, this.isLoaded, this.#lastId] = [[], [], null, undefined, false, ''];
		this.#stop = new AbortController();
		void this.#run(this.#stop.signal, follow);
	}
	stop(): void {
		this.#stop?.abort();
		if (this.#due) clearTimeout(this.#due);
		[this.#stop, this.#due, this.#fresh, this.isLive] = [null, null, [], false];
	}
	pause(isPaused: boolean): void {
		this.isPaused = isPaused;
		if (isPaused) return;
		this.rows = [...this.rows, ...this.held].slice(-LINES_MAX);
		this.held = [];
	}
	async loadOlder(): Promise<void> {
		if (!this.older) return;
		try {
			const found = await ask<LogLines>('/api/v1/logs', { ...this.#query, limit: PAGE, cursor: this.older });
			this.rows = [...found.lines.reverse().map(row), ...this.rows];
			this.older = this.rows.length < LINES_MAX ? (found.next ?? null) : null;
		} catch (error) {
			if (error instanceof Problem) this.problem = error;
		}
	}

	async #run(signal: AbortSignal, follow: boolean): Promise<void> {
		for (let failures = 0; !signal.aborted; failures += 1) {
			try {
				if (!this.isLoaded) await this.#first(signal);
				if (!follow) return;
				const isHidden = await whileShown(signal, async (shown) => {
					const headers: Record<string, string> = { accept: 'text/event-stream', ...(this.#lastId ? { 'last-event-id': this.#lastId } : {}) };
					const answer = await open(address('/api/v1/logs', { ...this.#query, follow: true }), { headers, signal: shown });
					if (failures) this.#add({ kind: 'note', key: `n${(this.#notes += 1)}`, text: 'Connected again; what came meanwhile follows.' });
					[failures, this.isLive, this.problem] = [0, true, undefined];
					for await (const frame of frames(answer, shown)) this.#take(frame);
				});
				if (isHidden) {
					failures = -1;
					continue;
				}
			} catch (error) {
				if (signal.aborted) return;
				if (error instanceof Problem && !error.isLost) {
					this.problem = error;
					return;
				}
			}
			this.isLive = false;
			const seconds = PAUSES_SECONDS[Math.min(failures, PAUSES_SECONDS.length - 1)] ?? 15;
			await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
		}
	}
	async #first(signal: AbortSignal): Promise<void> {
		const found = await ask<LogLines>('/api/v1/logs', { ...this.#query, limit: PAGE });
		if (signal.aborted) return;
		this.#lastId = String(found.lines[0]?.id ?? '');
		this.rows = found.lines.reverse().map(row);
		[this.older, this.isLoaded] = [found.next ?? null, true];
	}
	#take(frame: { event: string; data: string; id: string }): void {
		if (frame.id) this.#lastId = frame.id;
		if (frame.event === 'log') this.#add(row(JSON.parse(frame.data) as LogLine));
		else if (frame.event === 'gap') this.#add({ kind: 'gap', key: `n${(this.#notes += 1)}`, missed: Number((JSON.parse(frame.data) as { missed: number }).missed) });
	}
	#add(added: Row): void {
		this.#fresh.push(added);
		this.#due ??= setTimeout(() => {
			this.#due = null;
			const fresh = this.#fresh;
			this.#fresh = [];
			if (this.isPaused) this.held = [...this.held, ...fresh].slice(-LINES_MAX);
			else this.rows = [...this.rows, ...fresh].slice(-LINES_MAX);
		}, PAINT_MILLISECONDS);
	}
}

const row = (line: LogLine): Row => ({ kind: 'line', key: String(line.id), line });

/** The rows with the changes of state between them, each before the first line that was written after it. */
export function withChanges(rows: readonly Row[], changes: readonly HistoryEntry[]): Row[] {
	if (!changes.length) return [...rows];
	const found: Row[] = [];
	const waiting = changes.map((entry) => ({ entry, at: new Date(entry.at).getTime() }));
	let next = 0;
	for (const each of rows) {
		if (each.kind === 'line' && next < waiting.length) {
			const at = new Date(each.line.at).getTime();
			for (; next < waiting.length && waiting[next]!.at <= at; next += 1) found.push(changeRow(waiting[next]!.entry, next));
		}
		found.push(each);
	}
	return [...found, ...waiting.slice(next).map(({ entry }, index) => changeRow(entry, next + index))];
}
const changeRow = (entry: HistoryEntry, index: number): Row => ({ kind: 'change', key: `c${index} ${entry.at}`, entry });

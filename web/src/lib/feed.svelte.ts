// The live stream of events: one connection for the page, resumed where it broke. Parts of the page reload what they show
// when something has happened, at most once a second.
import { open } from './api';
import { frames } from './sse';

export interface FleetEvent {
	id: number; kind: string; at: string; message: string; site: string | null; deployment_id: string | null;
	node_id: string | null; subject: string; data: Record<string, unknown>;
}

const PAUSES_SECONDS = [1, 2, 4, 8, 15];
const PAINT_MILLISECONDS = 250;
const RECENT_MAX = 500;
/** How many past events are asked for, so that a page that was just opened has something to tell. */
const PAST = 200;

class Feed {
	changes = $state(0);
	lostAt = $state<Date | null>(null);
	/** When it is tried again, while central does not answer. */
	nextAt = $state<number | null>(null);
	#wake: (() => void) | null = null;
	caughtUp = $state<string | null>(null);
	recent = $state.raw<FleetEvent[]>([]);
	#lastId: number | null = null;
	#stop: AbortController | null = null;
	#due: ReturnType<typeof setTimeout> | null = null;
	#painting: ReturnType<typeof setTimeout> | null = null;
	#fresh: FleetEvent[] = [];
	#caught = 0;

	start(lastId: number): void {
		if (this.#stop) return;
		this.#lastId = Math.max(0, lastId - PAST);
		this.#stop = new AbortController();
		void this.#run(this.#stop.signal);
	}
	stop(): void {
		this.#stop?.abort();
		this.#stop = null;
		this.lostAt = null;
	}
	tryNow(): void {
		this.#wake?.();
	}
	/** Reload at once: after an action of one's own. */
	nudge(): void {
		this.changes += 1;
	}

	async #run(signal: AbortSignal): Promise<void> {
		for (let failures = 0; !signal.aborted; failures += 1) {
			try {
				const headers = { 'last-event-id': String(this.#lastId ?? 0), accept: 'text/event-stream' };
				const answer = await open('/api/v1/events', { headers, signal });
				this.#connected();
				failures = 0;
				await this.#read(answer, signal);
			} catch {
				if (signal.aborted) return;
			}
			this.lostAt ??= new Date();
			const seconds = PAUSES_SECONDS[Math.min(failures, PAUSES_SECONDS.length - 1)] ?? 15;
			this.nextAt = Date.now() + seconds * 1000;
			await new Promise<void>((resolve) => { this.#wake = resolve; setTimeout(resolve, seconds * 1000); });
			this.nextAt = null;
		}
	}
	#connected(): void {
		if (this.lostAt) {
			const seconds = Math.round((Date.now() - this.lostAt.getTime()) / 1000);
			this.#caught = 0;
			this.caughtUp = `Connected again after ${seconds} s.`;
			// What was missed is replayed at once; a moment later it can be counted.
			setTimeout(() => (this.caughtUp = `Connected again after ${seconds} s, ${this.#caught} event${this.#caught === 1 ? '' : 's'} caught up, none lost.`), 1500);
			setTimeout(() => (this.caughtUp = null), 8000);
			this.changes += 1;
		}
		this.lostAt = null;
	}
	#paint(): void {
		this.#painting = null;
		this.#caught += this.#fresh.length;
		this.recent = [...this.#fresh.reverse(), ...this.recent].slice(0, RECENT_MAX);
		this.#fresh = [];
	}
	async #read(answer: Response, signal: AbortSignal): Promise<void> {
		for await (const frame of frames(answer, signal)) {
			if (frame.id) this.#lastId = Number(frame.id);
			if (!frame.data) continue;
			try {
				const event = JSON.parse(frame.data) as FleetEvent;
				if (event.kind) this.#fresh.push(event);
			} catch {
				// A frame that cannot be read still says that something has happened.
			}
			this.#painting ??= setTimeout(() => this.#paint(), PAINT_MILLISECONDS);
			this.#due ??= setTimeout(() => {
				this.#due = null;
				this.changes += 1;
			}, 1000);
		}
	}
}

export const feed = new Feed();

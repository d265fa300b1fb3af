// The live stream of events: one connection for the page, resumed where it broke. Parts of the page reload what they show
// when something has happened, at most once a second.
import { losses, open } from './api';
import { frames } from './sse';
import { whileShown } from './visible';

export interface FleetEvent {
	id: number; kind: string; at: string; message: string; site: string | null; deployment_id: string | null;
	node_id: string | null; subject: string; data: Record<string, unknown>;
}

const PAUSES_SECONDS = [1, 2, 4, 8, 15];
const PAINT_MILLISECONDS = 250;
const QUIET_MILLISECONDS = 1_000;
/** The server says something every ten seconds; a line that is silent for longer is dead. */
const SILENCE_MILLISECONDS = 25_000;
/** For the stream to begin. */
const ANSWER_MILLISECONDS = 15_000;
/** Shorter than this, nobody has noticed that the stream was lost. */
const BLINK_SECONDS = 3;
const RECENT_MAX = 500;
/** How many past events are asked for, so that a page that was just opened has something to tell. */
const PAST = 200;
const OLDER_MILLISECONDS = 5_000;

class Feed {
	changes = $state(0);
	lostAt = $state<Date | null>(null);
	/** Whether central has answered since this page was opened. */
	wasLive = $state(false);
	/** When it is tried again, while central does not answer. */
	nextAt = $state<number | null>(null);
	#wake: (() => void) | null = null;
	caughtUp = $state<string | null>(null);
	recent = $state.raw<FleetEvent[]>([]);
	/** Whether it is known what happened lately. */
	isRead = $state(false);
	#lastId: number | null = null;
	#stop: AbortController | null = null;
	#due: ReturnType<typeof setTimeout> | null = null;
	#painting: ReturnType<typeof setTimeout> | null = null;
	#fresh: FleetEvent[] = [];
	#caught = 0;
	#limit = RECENT_MAX;
	/** Whether central sent how things stand instead of what was missed: it was restored, or is another one. */
	#isAnew = false;

	start(): void {
		if (this.#stop) return;
		this.#lastId = null;
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
				const isHidden = await whileShown(signal, async (shown) => {
					const answer = await soon(shown, async (signal) => {
						this.#lastId ??= Math.max(0, ((await (await open('/api/v1/overview', { signal })).json()) as { last_event_id: number }).last_event_id - PAST);
						return open('/api/v1/events', { headers: { 'last-event-id': String(this.#lastId), accept: 'text/event-stream' }, signal });
					});
					this.#connected();
					failures = 0;
					await this.#read(answer, shown);
				});
				if (isHidden) continue;
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
			[this.#caught, this.#isAnew] = [0, false];
			if (seconds >= BLINK_SECONDS) this.caughtUp = `Connected again after ${seconds} s.`;
			// What was missed is replayed at once; a moment later it can be counted.
			if (seconds >= BLINK_SECONDS) setTimeout(() => (this.caughtUp = `Connected again after ${seconds} s${this.#isAnew ? '. Central has another history than before, so everything was read again' : `, ${this.#caught} event${this.#caught === 1 ? '' : 's'} caught up, none lost`}.`), 1500);
			setTimeout(() => (this.caughtUp = null), 8000);
			this.changes += 1;
		}
		[this.lostAt, this.wasLive] = [null, true];
		// Where nothing has happened yet, nothing comes.
		this.#painting ??= setTimeout(() => this.#paint(), QUIET_MILLISECONDS);
	}
	/** What was shown before is of another history: its ids mean other events now. */
	#beginAnew(): void {
		if (this.#isAnew) return;
		[this.#isAnew, this.recent, this.#fresh] = [true, [], []];
	}
	/** The events before those that are known; false where there are none. */
	async older(): Promise<boolean> {
		const first = this.recent.at(-1)?.id ?? 0;
		if (first <= 1) return false;
		const stop = new AbortController();
		const found: FleetEvent[] = [];
		// The stream goes on with what is known already, and is left there; or, where that was removed meanwhile, after a while.
		const due = setTimeout(() => stop.abort(), OLDER_MILLISECONDS);
		try {
			const answer = await open('/api/v1/events', { headers: { 'last-event-id': String(Math.max(0, first - 1 - PAST)), accept: 'text/event-stream' }, signal: stop.signal });
			for await (const frame of frames(answer, stop.signal)) {
				if (!frame.data) continue;
				const event = JSON.parse(frame.data) as FleetEvent;
				if (event.id >= first) break;
				if (event.kind && !event.data?.snapshot) found.push(event);
			}
		} finally {
			clearTimeout(due);
			stop.abort();
		}
		this.#limit += found.length;
		this.recent = [...this.recent, ...found.reverse()];
		return found.length > 0;
	}
	#paint(): void {
		this.#painting = null;
		this.isRead = true;
		this.#caught += this.#fresh.length;
		this.recent = [...this.#fresh.reverse(), ...this.recent].slice(0, this.#limit);
		this.#fresh = [];
	}
	/** Reads on until the line breaks, is silent for too long, or another request or the browser says that it is lost. */
	async #read(answer: Response, signal: AbortSignal): Promise<void> {
		const dead = new AbortController();
		const broken = () => dead.abort();
		// Where central is on this machine, the next connection is there at once although there is no network.
		const wasOnline = navigator.onLine;
		let heard = Date.now();
		const watch = setInterval(() => { if (Date.now() - heard > SILENCE_MILLISECONDS || (wasOnline && !navigator.onLine)) broken(); }, 1_000);
		losses.addEventListener('lost', broken);
		try {
			await this.#take(answer, AbortSignal.any([signal, dead.signal]), () => (heard = Date.now()));
		} finally {
			clearInterval(watch);
			losses.removeEventListener('lost', broken);
		}
	}
	async #take(answer: Response, signal: AbortSignal, heard: () => void): Promise<void> {
		for await (const frame of frames(answer, signal, heard)) {
			if (frame.id) this.#lastId = Number(frame.id);
			if (!frame.data) continue;
			try {
				const event = JSON.parse(frame.data) as FleetEvent;
				if (event.data?.snapshot) this.#beginAnew();
				else if (event.kind) this.#fresh.push(event);
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

/** What is not answered by then fails: a central that accepts connections and says nothing is as good as away. */
async function soon<T>(signal: AbortSignal, question: (signal: AbortSignal) => Promise<T>): Promise<T> {
	const late = new AbortController();
	const due = setTimeout(() => late.abort(), ANSWER_MILLISECONDS);
	try {
		return await question(AbortSignal.any([signal, late.signal]));
	} finally {
		clearTimeout(due);
	}
}

export const feed = new Feed();

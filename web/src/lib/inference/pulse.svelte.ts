// How the task plane stands: its pools and its queue, asked for again when the server says that they changed. One
// connection for all parts of the page that show it, open while one of them does.
import { ask, asked, open, Problem } from '../api';
import { frames } from '../sse';
import { whileShown } from '../visible';
import type { Pool, Queue } from '../types';

const PAUSES_SECONDS = [1, 2, 4, 8, 15];
const KEPT = 120;
const SAMPLE_SECONDS = 5;

/** What its replicas answer with now: an idle one answers nothing, however fast it was. */
export const rateNow = (pool: Pool): number => pool.replicas.reduce((sum, replica) => sum + (replica.active_leases ? (replica.tokens_per_second ?? 0) : 0), 0);

class Pulse {
	pools = $state.raw<Pool[]>([]);
	queue = $state.raw<Queue>({ waiting: [], placed: [] });
	problem = $state<Problem | undefined>();
	isLoaded = $state(false);
	/** Since this page was opened, one for each few seconds. */
	rates = $state.raw<number[]>([]);
	depths = $state.raw<number[]>([]);
	rate = $derived(this.pools.reduce((sum, pool) => sum + rateNow(pool), 0));
	waiting = $derived(this.pools.reduce((sum, pool) => sum + pool.metrics.queue_depth, 0));
	oldestMs = $derived(this.queue.waiting.length ? Math.max(...this.queue.waiting.map((task) => task.waits_ms)) : null);
	#users = 0;
	#stop: AbortController | null = null;

	/** For an effect: it follows until what is returned is called. */
	use(): () => void {
		this.#users += 1;
		if (this.#users === 1) {
			this.#stop = new AbortController();
			void this.#follow(this.#stop.signal);
		}
		return () => {
			this.#users -= 1;
			if (this.#users === 0) this.#stop?.abort();
		};
	}
	/** Until it is answered: the server tells of each change once. */
	async reload(): Promise<void> {
		const signal = this.#stop?.signal;
		try {
			const [pools, queue] = await asked(() => Promise.all([ask<{ pools: Pool[] }>('/v2/pools'), ask<Queue>('/v2/queue')]), () => signal?.aborted === false);
			[this.pools, this.queue, this.problem, this.isLoaded] = [pools.pools, queue, undefined, true];
		} catch (error) {
			if (error instanceof Problem) this.problem = error;
		}
	}
	async #follow(signal: AbortSignal): Promise<void> {
		const sampling = setInterval(() => this.#sample(), SAMPLE_SECONDS * 1000);
		signal.addEventListener('abort', () => clearInterval(sampling));
		for (let failures = 0; !signal.aborted; failures += 1) {
			try {
				const isHidden = await whileShown(signal, async (shown) => {
					const answer = await open('/v2/queue/events', { headers: { accept: 'text/event-stream' }, signal: shown });
					for await (const frame of frames(answer, shown)) {
						failures = 0;
						if (frame.event === 'changed') await this.reload();
					}
				});
				if (isHidden) continue;
			} catch (error) {
				if (signal.aborted) return;
				if (error instanceof Problem && !error.isLost) {
					this.problem = error;
					return;
				}
			}
			const seconds = PAUSES_SECONDS[Math.min(failures, PAUSES_SECONDS.length - 1)] ?? 15;
			await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
		}
	}
	#sample(): void {
		if (!this.isLoaded) return;
		this.rates = [...this.rates, this.rate].slice(-KEPT);
		this.depths = [...this.depths, this.waiting].slice(-KEPT);
	}
}

export const pulse = new Pulse();

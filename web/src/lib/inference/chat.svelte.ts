// A conversation with a model: each answer is streamed, and says how long it took to begin and how fast it came.
import { ask, open, Problem } from '../api';
import { frames } from '../sse';
import type { Queue } from '../types';

export interface Turn { role: 'user' | 'assistant'; text: string; tokens: number; firstMs: number | null; seconds: number; note: string; placed: string }
interface Chunk { choices?: { delta?: { content?: string | null }; finish_reason?: string | null }[]; usage?: { completion_tokens?: number } | null; error?: { message?: string } }

export class Chat {
	turns = $state<Turn[]>([]);
	isBusy = $state(false);
	problem = $state<Problem | undefined>();
	/** Whole sentences only, for screen readers. */
	spoken = $state('');
	#stop: AbortController | null = null;

	stop(): void {
		this.#stop?.abort();
	}
	clear(): void {
		this.stop();
		[this.turns, this.problem, this.spoken] = [[], undefined, ''];
	}
	async send(text: string, options: { model: string; temperature: number; maxTokens: number; system: string }): Promise<void> {
		this.turns.push({ role: 'user', text, tokens: 0, firstMs: null, seconds: 0, note: '', placed: '' });
		const messages = [...(options.system ? [{ role: 'system', content: options.system }] : []), ...this.turns.map(({ role, text: content }) => ({ role, content }))];
		const answer = (this.turns[this.turns.push({ role: 'assistant', text: '', tokens: 0, firstMs: null, seconds: 0, note: '', placed: '' }) - 1])!;
		[this.isBusy, this.problem, this.#stop] = [true, undefined, new AbortController()];
		const [signal, began] = [this.#stop.signal, performance.now()];
		try {
			const body = JSON.stringify({ model: options.model, messages, stream: true, temperature: options.temperature, max_tokens: options.maxTokens, stream_options: { include_usage: true } });
			const opened = await open('/v1/chat/completions', { method: 'POST', headers: { 'content-type': 'application/json', accept: 'text/event-stream', 'x-priority': 'interactive' }, body, signal });
			void this.#placement(opened.headers.get('x-task-id'), answer);
			for await (const frame of frames(opened, signal)) {
				if (!frame.data || frame.data === '[DONE]') continue;
				this.#take(JSON.parse(frame.data) as Chunk, answer, began);
			}
		} catch (error) {
			if (signal.aborted) answer.note = 'stopped';
			else this.problem = error instanceof Problem ? error : new Problem(1, 'The answer broke off.', 'Try it again.');
		}
		answer.seconds = (performance.now() - began) / 1000;
		if (this.problem && !answer.text) this.turns = this.turns.slice(0, -1);
		else if (!answer.text && !answer.note) answer.note = 'the model said nothing';
		[this.isBusy, this.spoken] = [false, answer.text];
	}
	/** Where it runs and why, which is decided before the first word; who may not see it is not told. */
	async #placement(task: string | null, answer: Turn): Promise<void> {
		const found = task && (await ask<Queue>('/v2/queue').catch(() => null))?.placed.find((each) => each.task_id === task);
		if (found) answer.placed = `${found.waited_ms ? `waited ${(found.waited_ms / 1000).toFixed(1)} s; ` : ''}${found.why}`;
	}
	#take(chunk: Chunk, answer: Turn, began: number): void {
		if (chunk.error) throw new Problem(1, chunk.error.message ?? 'The engine failed.');
		const piece = chunk.choices?.[0]?.delta?.content ?? '';
		if (piece) {
			answer.firstMs ??= Math.round(performance.now() - began);
			answer.text += piece;
			answer.tokens += 1;
			if (/[.!?]\s*$/.test(answer.text)) this.spoken = answer.text;
		}
		if (chunk.choices?.[0]?.finish_reason === 'length') answer.note = 'cut at max tokens';
		if (chunk.usage?.completion_tokens) answer.tokens = chunk.usage.completion_tokens;
		answer.seconds = (performance.now() - began) / 1000;
	}
}

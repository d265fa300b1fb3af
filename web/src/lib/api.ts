// Calls of Homeport's API. Every failure is a Problem with the server's own sentence.
import { session } from './session.svelte';

export interface FieldProblem { field: string; message: string; line?: number | null }
export class Problem extends Error {
	constructor(
		readonly status: number,
		message: string,
		readonly hint: string | null = null,
		readonly fields: FieldProblem[] = [],
		readonly code = ''
	) {
		super(message);
	}
	/** Somebody else was faster, or it is no longer as it was shown. */
	get isConflict(): boolean {
		return this.status === 409 || this.status === 412;
	}
	get isUnreachable(): boolean {
		return this.status === 0;
	}
	/** What is wrong as a whole; empty where the sentences of the fields say it all. */
	get summary(): string {
		return this.fields.some((each) => this.message.includes(each.message)) ? '' : this.message;
	}
	/** Not an answer to what was asked: the same question may be answered next time. */
	get isLost(): boolean {
		return this.status === 0 || this.status >= 500;
	}
}
/** Told when a request was lost: the live stream may be dead as well, and nothing has said so yet. */
export const losses = new EventTarget();
function lost(): Problem {
	losses.dispatchEvent(new Event('lost'));
	return new Problem(0, 'Central does not answer.', 'Sites and their apps go on without it.');
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export function address(path: string, query: Query = {}): string {
	const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '');
	const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
	return text ? `${path}?${text}` : path;
}

export async function open(path: string, options: RequestInit = {}): Promise<Response> {
	let answer: Response;
	const key = session.who?.key;
	try {
		const headers = { ...session.headers(), ...options.headers };
		answer = await fetch(path, { ...options, headers, credentials: 'same-origin', cache: 'no-store' });
	} catch (error) {
		if (error instanceof DOMException && error.name === 'AbortError') throw error;
		throw lost();
	}
	if (!answer.ok) {
		if (answer.status === 401) session.lost(key);
		throw await problemOf(answer);
	}
	return answer;
}

async function problemOf(answer: Response): Promise<Problem> {
	try {
		const body = await answer.json();
		// Three envelopes: problem+json of /api/v1, the code and message of /v2, OpenAI's error of /v1.
		const said = body.detail ?? body.message ?? body.error?.message ?? body.title ?? `The server answered ${answer.status}.`;
		return new Problem(answer.status, said, body.hint, body.errors ?? [], body.code ?? body.error?.code);
	} catch {
		return new Problem(answer.status, `The server answered ${answer.status}.`);
	}
}

/** An answer may still break off after it has begun. */
async function read<T>(answer: Response): Promise<T> {
	try {
		return await answer.json();
	} catch {
		throw lost();
	}
}

export async function ask<T>(path: string, query: Query = {}): Promise<T> {
	return read(await open(address(path, query)));
}

const AGAIN_MILLISECONDS = 2_000;
/** Asks until there is an answer, or until nobody wants it any more; a refusal is an answer. */
export async function asked<T>(question: () => Promise<T>, isWanted: () => boolean): Promise<T> {
	for (;;) {
		try {
			return await question();
		} catch (error) {
			if (!(error instanceof Problem && error.isLost && isWanted())) throw error;
		}
		await new Promise((resolve) => setTimeout(resolve, AGAIN_MILLISECONDS));
	}
}

export async function act<T>(method: string, path: string, body?: unknown, query: Query = {}): Promise<T> {
	const headers: Record<string, string> = body === undefined ? {} : { 'content-type': 'application/json' };
	const answer = await open(address(path, query), { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
	return answer.status === 204 ? (undefined as T) : read(answer);
}

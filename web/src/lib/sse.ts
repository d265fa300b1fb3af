// Server-sent events read with `fetch`, since `EventSource` cannot send the session's key.
export interface Frame { event: string; data: string; id: string }

/** `heard` is called whenever something comes, were it only a sign of life. */
export async function* frames(answer: Response, signal?: AbortSignal, heard?: () => void): AsyncGenerator<Frame> {
	const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
	let pending = '';
	const stop = () => void reader.cancel().catch(() => undefined);
	signal?.addEventListener('abort', stop);
	try {
		while (!signal?.aborted) {
			const { done, value } = await reader.read();
			if (done) return;
			heard?.();
			pending += value.replaceAll('\r\n', '\n');
			for (let end = pending.indexOf('\n\n'); end >= 0; end = pending.indexOf('\n\n')) {
				yield parsed(pending.slice(0, end));
				pending = pending.slice(end + 2);
			}
		}
	} finally {
		signal?.removeEventListener('abort', stop);
		stop();
	}
}

function parsed(text: string): Frame {
	const found: Frame = { event: 'message', data: '', id: '' };
	const data: string[] = [];
	for (const line of text.split('\n')) {
		if (line.startsWith('id:')) found.id = line.slice(3).trim();
		else if (line.startsWith('event:')) found.event = line.slice(6).trim();
		else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
	}
	found.data = data.join('\n');
	return found;
}

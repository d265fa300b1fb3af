// A command in a container, over the same stream protocol as `homeport exec`: frames of one stream inside a WebSocket,
// and in them messages with a channel. The key of the session travels as a subprotocol, since a browser can send no header.
import { session } from '../session.svelte';

const [HELLO, OPEN, ACCEPT, REFUSE, DATA, CREDIT, END, RESET, PING, PONG] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const [INPUT, OUTPUT, ERRORS, EXIT] = [0, 1, 2, 3];
const PROTOCOL = 2;
const WINDOW = 256 * 1024;
const STREAM = 1;
const [FRAME_HEAD, MESSAGE_HEAD] = [9, 5];
const utf8 = new TextEncoder();

export interface Told { text: (text: string, isError: boolean) => void; ended: (why: string) => void; ready: () => void }

export class Exec {
	#socket: WebSocket;
	#frames = new Uint8Array();
	#messages = new Uint8Array();
	#credit = 0;
	#unreturned = 0;
	#isOver = false;
	#decoders = { [OUTPUT]: new TextDecoder(), [ERRORS]: new TextDecoder() } as Record<number, TextDecoder>;

	constructor(path: string, command: string[], readonly told: Told) {
		const address = new URL(path, location.href);
		address.protocol = address.protocol.replace('http', 'ws');
		this.#socket = new WebSocket(address, ['homeport.tunnel', `homeport.key.${session.who?.key ?? ''}`]);
		this.#socket.binaryType = 'arraybuffer';
		this.#socket.onopen = () => {
			this.#send(HELLO, 0, utf8.encode(JSON.stringify({ protocol: PROTOCOL, version: 'dashboard' })));
			const header = utf8.encode(JSON.stringify({ kind: 'exec', command, input: true, terminal: null }));
			this.#send(OPEN, STREAM, joined(number(WINDOW), header));
		};
		this.#socket.onmessage = ({ data }) => this.#receive(new Uint8Array(data as ArrayBuffer));
		this.#socket.onclose = () => this.#over('The connection was closed. Your role must be operator, the container must run, and its node must allow commands (--allow exec).');
	}
	/** False where the command has not yet read what was sent before. */
	write(text: string): boolean {
		const content = utf8.encode(text);
		const message = joined(Uint8Array.of(INPUT), number(content.length), content);
		if (this.#isOver || message.length > this.#credit) return false;
		this.#credit -= message.length;
		this.#send(DATA, STREAM, message);
		return true;
	}
	close(): void {
		this.#isOver = true;
		if (this.#socket.readyState === WebSocket.OPEN) this.#send(RESET, STREAM, new Uint8Array());
		this.#socket.close();
	}

	#over(why: string): void {
		if (this.#isOver) return;
		this.#isOver = true;
		this.#socket.close();
		this.told.ended(why);
	}
	#send(kind: number, stream: number, payload: Uint8Array): void {
		this.#socket.send(joined(Uint8Array.of(kind), number(stream), number(payload.length), payload));
	}
	#receive(data: Uint8Array): void {
		this.#frames = joined(this.#frames, data);
		while (this.#frames.length >= FRAME_HEAD) {
			const view = new DataView(this.#frames.buffer, this.#frames.byteOffset);
			const [kind, length] = [view.getUint8(0), view.getUint32(5)];
			if (this.#frames.length < FRAME_HEAD + length) return;
			const payload = this.#frames.slice(FRAME_HEAD, FRAME_HEAD + length);
			this.#frames = this.#frames.slice(FRAME_HEAD + length);
			this.#take(kind, payload);
		}
	}
	#take(kind: number, payload: Uint8Array): void {
		if (kind === ACCEPT) {
			this.#credit = new DataView(payload.buffer).getUint32(0);
			this.told.ready();
		} else if (kind === CREDIT) this.#credit += new DataView(payload.buffer).getUint32(0);
		else if (kind === DATA) this.#read(payload);
		else if (kind === PING) this.#send(PONG, 0, new Uint8Array());
		else if (kind === REFUSE || kind === RESET) this.#over(reason(payload));
		else if (kind === END) this.#over('The command has ended.');
	}
	#read(payload: Uint8Array): void {
		this.#unreturned += payload.length;
		if (this.#unreturned * 2 >= WINDOW) {
			this.#send(CREDIT, STREAM, number(this.#unreturned));
			this.#unreturned = 0;
		}
		this.#messages = joined(this.#messages, payload);
		while (this.#messages.length >= MESSAGE_HEAD) {
			const view = new DataView(this.#messages.buffer, this.#messages.byteOffset);
			const [channel, length] = [view.getUint8(0), view.getUint32(1)];
			if (this.#messages.length < MESSAGE_HEAD + length) return;
			const content = this.#messages.slice(MESSAGE_HEAD, MESSAGE_HEAD + length);
			this.#messages = this.#messages.slice(MESSAGE_HEAD + length);
			if (channel === EXIT) this.#over(`The command ended with exit code ${(JSON.parse(new TextDecoder().decode(content)) as { code?: number }).code ?? 0}.`);
			else if (channel === OUTPUT || channel === ERRORS) this.told.text(this.#decoders[channel]!.decode(content, { stream: true }), channel === ERRORS);
		}
	}
}

function reason(payload: Uint8Array): string {
	try {
		const said = JSON.parse(new TextDecoder().decode(payload)) as { message?: string; detail?: string; hint?: string };
		return [said.message ?? said.detail ?? 'It was refused.', said.hint].filter(Boolean).join(' ');
	} catch {
		return 'It was refused.';
	}
}
function number(value: number): Uint8Array {
	const bytes = new Uint8Array(4);
	new DataView(bytes.buffer).setUint32(0, value);
	return bytes;
}
function joined(...parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
	const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
	let at = 0;
	for (const part of parts) {
		whole.set(part, at);
		at += part.length;
	}
	return whole;
}

// Server-sent events, for browsers and node alike. `EventSource` would do in a browser, but cannot send a token.

export interface ServerSentEvent {
  readonly id: string;
  readonly event: string;
  readonly data: string;
}

/** Events until the server ends the stream or `signal` aborts it. Give the last id as `after` to resume. */
export async function* readEvents(
  url: string, options: { token?: string; after?: string; signal?: AbortSignal } = {},
): AsyncGenerator<ServerSentEvent> {
  const headers: Record<string, string> = { accept: "text/event-stream" };
  if (options.token) headers.authorization = `Bearer ${options.token}`;
  if (options.after) headers["last-event-id"] = options.after;
  const answer = await fetch(url, { headers, ...(options.signal ? { signal: options.signal } : {}) });
  if (!answer.ok || answer.body === null) throw new Error(`The server answered ${answer.status}: ${await answer.text()}`);
  let rest = "";
  const decoder = new TextDecoder();
  for await (const chunk of answer.body as unknown as AsyncIterable<Uint8Array>) {
    const blocks = (rest + decoder.decode(chunk, { stream: true })).split(/\r?\n\r?\n/u);
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const event = parseBlock(block);
      if (event !== undefined) yield event;
    }
  }
}

function parseBlock(block: string): ServerSentEvent | undefined {
  const found: Record<string, string[]> = {};
  for (const line of block.split(/\r?\n/u)) {
    if (line.startsWith(":") || line === "") continue;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    (found[name] ??= []).push(colon < 0 ? "" : line.slice(colon + 1).replace(/^ /u, ""));
  }
  if (found.data === undefined) return undefined;
  return { id: found.id?.at(-1) ?? "", event: found.event?.at(-1) ?? "message", data: found.data.join("\n") };
}

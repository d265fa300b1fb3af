/// <reference no-default-lib="true" />
/// <reference lib="esnext" />
/// <reference lib="webworker" />
// Keeps the document, the script and the style of the dashboard, which everybody may fetch without logging in, so that a page that is opened while
// central does not answer can say so (ADR 0204). While central answers, pages come from it. Nothing of the API passes through here.
import { build } from '$service-worker';

declare const self: ServiceWorkerGlobalScope;
/** Of the build: the names of the pages, and the digest of their document. */
declare const SHELL: { pages: string[]; document: string };

const DOCUMENT = '/';
const KEPT = 'homeport-shell';
/** Named after what it holds: the files of two builds are never mixed. */
const NAME = [KEPT, SHELL.document, ...build].join(' ');
/** A central that takes longer for its document is as good as away. */
const ANSWER_MILLISECONDS = 5_000;
/** What a proxy says for a central that is away. */
const AWAY = [502, 503, 504];

self.addEventListener('install', (event) => event.waitUntil(keep()));
self.addEventListener('activate', (event) => event.waitUntil(forget()));
self.addEventListener('fetch', (event) => {
	const { origin, pathname } = new URL(event.request.url);
	if (event.request.method !== 'GET' || origin !== self.location.origin) return;
	if (build.includes(pathname)) event.respondWith(file(event.request));
	else if (event.request.mode === 'navigate' && SHELL.pages.includes(pathname.split('/')[1] ?? '')) event.respondWith(page(event.request));
});

async function keep(): Promise<void> {
	const found = await Promise.all([DOCUMENT, ...build].map(async (path) => [path, await fetch(path, { cache: 'no-cache', credentials: 'omit' })] as const));
	const text = await found[0]![1].clone().text();
	// While replicas are upgraded the document may be of another version, and would ask for files that are not kept.
	if (!found.every(([, answer]) => answer.ok) || !build.every((path) => text.includes(path))) throw new Error('The files of the dashboard are of two versions.');
	const cache = await caches.open(NAME);
	await Promise.all(found.map(([path, answer]) => cache.put(path, answer)));
	await self.skipWaiting();
}
async function forget(): Promise<void> {
	for (const name of await caches.keys()) if (name.startsWith(KEPT) && name !== NAME) await caches.delete(name);
}
async function kept(path: string): Promise<Response | undefined> {
	return (await caches.open(NAME)).match(path);
}
/** Their names hold the digest of their content. */
async function file(request: Request): Promise<Response> {
	return (await kept(new URL(request.url).pathname)) ?? fetch(request);
}
async function page(request: Request): Promise<Response> {
	try {
		const answer = await fetch(request, { signal: AbortSignal.timeout(ANSWER_MILLISECONDS) });
		return AWAY.includes(answer.status) ? ((await kept(DOCUMENT)) ?? answer) : answer;
	} catch {
		return (await kept(DOCUMENT)) ?? Response.error();
	}
}

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { sveltekit } from '@sveltejs/kit/vite';
import { defineConfig } from 'vite';

/** What the service worker knows of the pages: the first part of each address, empty for the overview, and the digest of their document. */
const SHELL = {
	pages: ['', ...readdirSync('src/routes', { withFileTypes: true }).filter((each) => each.isDirectory()).map((each) => each.name).sort()],
	document: createHash('sha256').update(readFileSync('src/app.html')).digest('hex').slice(0, 16)
};

export default defineConfig({
	plugins: [sveltekit()],
	define: { SHELL: JSON.stringify(SHELL) },
	build: { target: 'es2022', assetsInlineLimit: 0, reportCompressedSize: false },
	// `HOMEPORT_URL=http://127.0.0.1:8080 npx vite dev` shows a running fleet while the page is changed.
	server: { proxy: { '/api': process.env.HOMEPORT_URL ?? 'http://127.0.0.1:8080' } }
});

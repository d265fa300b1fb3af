import { sveltekit } from '@sveltejs/kit/vite';
import { defineConfig } from 'vite';

export default defineConfig({
	plugins: [sveltekit()],
	build: { target: 'es2022', assetsInlineLimit: 0, reportCompressedSize: false },
	// `HOMEPORT_URL=http://127.0.0.1:8080 npx vite dev` shows a running fleet while the page is changed.
	server: { proxy: { '/api': process.env.HOMEPORT_URL ?? 'http://127.0.0.1:8080' } }
});

import adapter from '@sveltejs/adapter-static';
import { vitePreprocess } from '@sveltejs/vite-plugin-svelte';

/** One document for every page: the script shows what the address asks for. It is built into the Python package. */
export default {
	preprocess: vitePreprocess(),
	kit: {
		adapter: adapter({ pages: '../src/homeport/dashboard/static', fallback: 'index.html', precompress: true }),
		paths: { relative: false },
		version: { name: 'homeport' }
	}
};

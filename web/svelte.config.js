import adapter from '@sveltejs/adapter-static';
import { vitePreprocess } from '@sveltejs/vite-plugin-svelte';

/** One document and one script for every page: what the address asks for is shown without asking for more of the program, so that
 * no page is missing while central does not answer. It is built into the Python package. */
export default {
	preprocess: vitePreprocess(),
	kit: {
		adapter: adapter({ pages: '../src/homeport/dashboard/static', fallback: 'index.html', precompress: true }),
		output: { bundleStrategy: 'single' },
		paths: { relative: false },
		// Registered by the layout, which goes on without it where a browser refuses.
		serviceWorker: { register: false },
		version: { name: 'homeport' }
	}
};

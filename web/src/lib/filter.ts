// The filter language, as far as a field needs it: which part is being written, and what of it can be asked already. The
// server reads it.
export const WORDS: Record<string, string> = {
	site: 'at a site: site:gdansk-*', app: 'of an app: app:historian', state: 'in a state: state:FAILED', node: 'on a node: node:cam-2', label: 'with a label: label:region=north', code: 'failed with a code: code:HEALTH_CHECK_FAILED',
	name: 'of a name', deployment: 'of a deployment: deployment:hello@home', component: 'of a component', job: 'of a job'
};
const PART = /^(-?)(?:([A-Za-z]+):)?("[^"]*"?|\S*)$/;

export interface Written { before: string; minus: string; word: string | null; value: string }

/** The last part of the text, which is the one that is being written. */
export function written(text: string): Written {
	const found = /(?:"[^"]*"?|[^\s"])*$/.exec(text)?.[0] ?? '';
	const before = text.slice(0, text.length - found.length);
	const part = PART.exec(found);
	return { before, minus: part?.[1] ?? '', word: part?.[2]?.toLowerCase() ?? null, value: (part?.[3] ?? found).replaceAll('"', '') };
}

/** Without a last part that is a word alone, as while it is being written. */
export function askable(text: string, words: readonly string[]): string {
	const last = written(text);
	return (last.word !== null && words.includes(last.word) && !last.value ? last.before : text).trim();
}

/** With the last part replaced. */
export function replaced(text: string, word: string, value: string): string {
	const { before, minus } = written(text);
	return `${before}${minus}${word}:${/\s/.test(value) ? `"${value}"` : value}${value ? ' ' : ''}`;
}

/** One value of a word, for the address and for chips: set, or taken out. */
export function withWord(text: string, word: string, value: string | null): string {
	const kept = (text.match(/(?:"[^"]*"?|[^\s"])+/g) ?? []).filter((part) => !part.toLowerCase().startsWith(`${word}:`));
	return [...kept, ...(value ? [`${word}:${value}`] : [])].join(' ');
}
export const wordIn = (text: string, word: string): string | null => new RegExp(`(?:^|\\s)${word}:(\\S+)`, 'i').exec(text)?.[1] ?? null;
/** The filter of an address: `filter=` itself, and words that stand there as parameters of their own, as `?state=FAILED&site=gdansk-*`. */
export function filterOf(query: URLSearchParams, words: readonly string[]): string {
	const named = words.flatMap((word) => query.getAll(word === 'app' && query.has('app_name') ? 'app_name' : word).map((value) => `${word}:${/\s/.test(value) ? `"${value}"` : value}`));
	return [query.get('filter'), query.get('contains'), ...named].filter(Boolean).join(' ');
}
/** The parts without a word, that are not excluded. */
export function textsOf(text: string, words: readonly string[]): string[] {
	const parts = text.match(/(?:"[^"]*"?|[^\s"])+/g) ?? [];
	return parts.filter((part) => !part.startsWith('-') && !words.some((word) => part.toLowerCase().startsWith(`${word}:`))).map((part) => part.replaceAll('"', '')).filter(Boolean);
}

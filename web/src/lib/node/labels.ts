// Labels as lines of text, and what changes between two of them: only that is sent, so that the labels a node was started with stay its own,
// and what somebody else has set meanwhile stays too.
export type Labels = Record<string, string>;
export type LabelChange = Record<string, string | null>;

export const linesOf = (labels: Labels): string => Object.entries(labels).map(([key, value]) => `${key}=${value}`).join('\n');

/** The labels of a text, and the first line of it that is none. */
export function labelsOf(text: string): { labels: Labels; wrong: string | null } {
	const lines = text.split(/[\n,]+/).map((each) => each.trim()).filter(Boolean);
	const labels = Object.fromEntries(lines.map((each) => [each.split('=')[0]!.trim(), each.split('=').slice(1).join('=').trim()]));
	return { labels, wrong: lines.find((each) => !/^[^=\s]+=/.test(each)) ?? null };
}

export function changeOf(before: Labels, after: Labels): LabelChange {
	const gone = Object.keys(before).filter((key) => !(key in after)).map((key) => [key, null] as const);
	const set = Object.entries(after).filter(([key, value]) => before[key] !== value);
	return Object.fromEntries([...gone, ...set]);
}

export function changed(labels: Labels, change: LabelChange): Labels {
	return Object.fromEntries(Object.entries({ ...labels, ...change }).filter((each): each is [string, string] => each[1] !== null));
}

/** As the command line takes it: KEY=VALUE, and KEY- for one that goes. */
export const wordsOf = (change: LabelChange): string[] => Object.entries(change).map(([key, value]) => (value === null ? `${key}-` : `${key}=${value}`));

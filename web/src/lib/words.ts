// Words of a command line, as a shell would read them, and back.
export function words(text: string): string[] {
	const found: string[] = [];
	let [word, quote, isOpen] = ['', '', false] as [string, string, boolean];
	for (let index = 0; index < text.length; index += 1) {
		const letter = text[index]!;
		if (quote) {
			if (letter === quote) quote = '';
			else if (letter === '\\' && quote === '"' && '"\\$`'.includes(text[index + 1] ?? ' ')) word += text[(index += 1)]!;
			else word += letter;
		} else if (letter === '"' || letter === "'") [quote, isOpen] = [letter, true];
		else if (letter === '\\' && index + 1 < text.length) [word, isOpen] = [word + text[(index += 1)]!, true];
		else if (/\s/.test(letter)) {
			if (isOpen) found.push(word);
			[word, isOpen] = ['', false];
		} else [word, isOpen] = [word + letter, true];
	}
	if (isOpen) found.push(word);
	return found;
}

/** How the sites of a rollout stand, in words. */
export const standings = (counts: Record<string, number>): string => Object.entries(counts).filter(([, count]) => count).map(([word, count]) => `${count} ${word === 'left' ? 'left it since' : word}`).join(', ');

/** What has begun a run of a pipeline, where it was not a person. */
export const triggered = (trigger: string): string => ({ schedule: 'by its schedule', webhook: 'by its webhook', pipeline: 'by another pipeline' })[trigger] ?? '';

export const shellQuoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** A text with its UUIDs and commits cut to their first eight letters; what follows them, as the step of a run, stays. */
export const shortIds = (text: string): string => text.replace(/\b([0-9a-f]{8})[0-9a-f]{32}\b/g, '$1').replace(/\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, '$1');

/** Names as people count them: bremen-2 before bremen-10. */
export const byName = new Intl.Collator(undefined, { numeric: true }).compare;

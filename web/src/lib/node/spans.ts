// What lies over a chart: spans in which nothing was measured, and which of its marks have room for their words.
export interface Gap { from: number; to: number }

/** The values are points in time; a gap reaches from the last one before it to the first one after it. The newest moments may
 * still be on their way, so that an end counts as a gap only when more than two steps of it are missing. */
export function gapsOf(times: readonly number[], lines: readonly (readonly (number | null | undefined)[])[]): Gap[] {
	const has = times.map((_, index) => lines.some((values) => values[index] !== null && values[index] !== undefined));
	const found: Gap[] = [];
	for (let index = 0; index < times.length; ) {
		if (has[index]) {
			index += 1;
			continue;
		}
		const first = index;
		while (index < times.length && !has[index]) index += 1;
		if (index < times.length || index - first > 2) found.push({ from: times[Math.max(0, first - 1)]!, to: times[Math.min(times.length - 1, index)]! });
	}
	return found;
}

export interface Placed { x: number; text: string }
const LETTER_WIDTH = 6;
const CLOSE = 5;

/** Marks that fall together are one, with the words of the newest; words that would lie over others are left out. */
export function labelled<Mark extends Placed>(marks: readonly Mark[], width: number): (Mark & { label: string; isLeft: boolean })[] {
	const apart: (Mark & { more: number; first: number })[] = [];
	for (const mark of marks) {
		const before = apart.at(-1);
		if (before && mark.x - before.first < CLOSE) apart[apart.length - 1] = { ...mark, more: before.more + 1, first: before.first };
		else apart.push({ ...mark, more: 0, first: mark.x });
	}
	const taken: [number, number][] = [];
	return apart.toReversed().map((mark) => {
		const text = mark.more ? `${mark.text} +${mark.more}` : mark.text;
		const long = text.length * LETTER_WIDTH + 6;
		const isLeft = mark.x + long > width;
		const span: [number, number] = isLeft ? [mark.x - long, mark.x] : [mark.x, mark.x + long];
		const isFree = span[0] >= 0 && taken.every(([from, to]) => span[1] <= from || span[0] >= to);
		if (isFree) taken.push(span);
		return { ...mark, label: isFree ? text : '', isLeft };
	}).toReversed();
}

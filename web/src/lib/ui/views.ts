// What the marks of the map may tell instead of health: how full each machine is, or which version runs there.
import type { Deployment, Use } from '../types';

export type View = 'health' | 'load' | 'version';
export const VIEWS: [View, string][] = [['health', 'Health'], ['load', 'Load'], ['version', 'Version']];
export const FULL_PERCENT = 90;
/** Nothing of it runs there. */
export const NONE = '';
const SEVERAL = '±', OTHER = '+';
const LETTERS = 'ABCDEFGH';

/** The fuller of processor and memory, of each node that has measured itself. */
export function loads(use: Use | undefined): Map<string, number> {
	const found = new Map<string, number>();
	for (const each of use?.nodes ?? []) {
		const memory = each.memory_used_bytes !== null && each.memory_bytes ? (each.memory_used_bytes / each.memory_bytes) * 100 : null;
		const parts = [each.cpu_percent, memory].filter((part) => part !== null && part !== undefined);
		if (parts.length) found.set(`${each.node}@${each.site}`, Math.min(100, Math.max(...parts)));
	}
	return found;
}

/** What runs of an app on each node, `node@site`. */
export function versionsOfApp(items: readonly Deployment[]): Map<string, string[]> {
	const found = new Map<string, Set<string>>();
	for (const item of items) for (const each of item.instances) {
		const version = each.running_version ?? (each.state === 'INSTALLED' ? item.app_version : null);
		if (!each.node_id || !version) continue;
		const key = `${each.node_id}@${item.site}`;
		found.set(key, (found.get(key) ?? new Set()).add(version));
	}
	return new Map([...found].map(([key, versions]) => [key, [...versions]]));
}

export interface Lettered { letter: string; version: string; count: number }
/** A letter for each version, the newest first; `all` has one list for each place. */
export function lettered(all: readonly (readonly string[])[]): Lettered[] {
	const counts = new Map<string, number>();
	for (const each of all) for (const version of each) counts.set(version, (counts.get(version) ?? 0) + 1);
	const newest = [...counts].sort(([one], [other]) => other.localeCompare(one, undefined, { numeric: true }));
	return newest.map(([version, count], index) => ({ letter: LETTERS[index] ?? OTHER, version, count }));
}
export function letterOf(versions: readonly string[], known: readonly Lettered[]): string {
	if (versions.length !== 1) return versions.length ? SEVERAL : NONE;
	return known.find((each) => each.version === versions[0])?.letter ?? OTHER;
}

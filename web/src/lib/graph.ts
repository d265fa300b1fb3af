// Steps as columns: each stands right of all that it needs.
export interface Step { name: string; needs: string[] }
export interface Placed { name: string; x: number; y: number }

export function placed(steps: Step[]): Placed[] {
	const columns = new Map<string, number>();
	const byName = new Map(steps.map((step) => [step.name, step]));
	const columnOf = (name: string, seen: Set<string>): number => {
		const known = columns.get(name);
		if (known !== undefined) return known;
		if (seen.has(name)) return 0;
		seen.add(name);
		const needs = byName.get(name)?.needs ?? [];
		const column = needs.length ? Math.max(...needs.map((each) => columnOf(each, seen))) + 1 : 0;
		columns.set(name, column);
		return column;
	};
	const rows = new Map<number, number>();
	return steps.map((step) => {
		const x = columnOf(step.name, new Set());
		const y = rows.get(x) ?? 0;
		rows.set(x, y + 1);
		return { name: step.name, x, y };
	});
}

// What a plan says of images: which ones change, and how much the nodes would pull for that at most.
import { size } from '../time.svelte';
import type { Plan, Planned } from '../types';

type Component = Planned['nodes'][number]['components'][number];

const pathOf = (image: string) => image.split('@')[0]!.replace(/:[^:/]*$/, '');
/** Without the registry and its folders, and with the beginning of a digest. */
const short = (image: string) => image.slice(image.lastIndexOf('/') + 1).replace(/(@\w+:\w{12})\w+$/, '$1');
const changed = (part: Component) => (part.images ?? []).filter((image) => image.before !== image.after);

function said(before: string | null, after: string | null): string {
	if (before === null) return `${short(after ?? '')} (new)`;
	if (after === null) return `${short(before)} (no longer)`;
	return pathOf(before) === pathOf(after) ? `${short(before)} → ${short(after)}` : `${before} → ${after}`;
}

/** A line for each image of a component that changes, and what has to be pulled for all of them. */
export function imagesOf(part: Component): string[] {
	const lines = changed(part).map((image) => `image ${said(image.before, image.after)}`);
	if (!lines.length) return [];
	return [...lines.slice(0, -1), `${lines.at(-1)!}, pull ${part.pull_bytes === null ? 'unknown size' : part.pull_bytes ? `up to ${size(part.pull_bytes)}` : 'nothing'}`];
}

/** For all nodes together; null where nothing is pulled, or nobody knows how much. */
export function pulledBy(plan: Plan): string | null {
	const parts = plan.deployments.flatMap((each) => each.nodes.flatMap((node) => node.components)).filter((part) => changed(part).length);
	if (!parts.length || parts.every((part) => part.pull_bytes === null)) return null;
	const bytes = parts.reduce((sum, part) => sum + (part.pull_bytes ?? 0), 0);
	return parts.some((part) => part.pull_bytes === null) ? `${size(bytes)} +` : size(bytes);
}

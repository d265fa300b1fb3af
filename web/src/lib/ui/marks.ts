// What one mark of a map says: of a site or of a node, with its shape, its word and its reason.
import type { Deployment, Instance, Node, Site } from '../types';

export type Mark = 'wanted' | 'changing' | 'back' | 'failed' | 'away' | 'drained' | 'held' | 'waiting';
export const LEGEND: [Mark, string][] = [['wanted', 'as wanted'], ['changing', 'changing'], ['back', 'rolling or rolled back'], ['failed', 'failed'], ['away', 'not reachable'], ['drained', 'drained'], ['held', 'held']];
export const RANK: Record<Mark, number> = { failed: 0, away: 1, back: 2, changing: 3, held: 4, drained: 5, waiting: 6, wanted: 7 };
const CHANGING = ['INSTALLING', 'UPDATING', 'DELETING', 'PENDING'];

function ofState(state: string): Mark {
	if (state === 'FAILED') return 'failed';
	if (state === 'ROLLINGBACK') return 'back';
	return CHANGING.includes(state) ? 'changing' : 'wanted';
}
/** Runs well, but another release than the wanted one. */
const isBehind = (item: Deployment, instance: Instance) => item.behind && instance.state === 'INSTALLED' && instance.running_revision !== item.revision;

export function ofInstance(item: Deployment, instance: Instance | undefined): Mark {
	if (!instance) return ofState(item.state);
	return isBehind(item, instance) ? 'back' : ofState(instance.state);
}
/** `items`: those of its deployments that are known; the ones that need attention are enough. */
export function behindAt(items: readonly Deployment[]): number {
	return items.filter((item) => item.instances.some((each) => isBehind(item, each))).length;
}
/** `drained`: how many of its nodes are. */
export function ofSite(site: Site, behind = 0, drained = 0): Mark {
	if (!site.reachable) return 'away';
	const has = (state: string) => (site.deployments[state] ?? 0) > 0;
	if (site.problem !== null || has('FAILED')) return 'failed';
	if (has('ROLLINGBACK') || behind) return 'back';
	if (CHANGING.some(has)) return 'changing';
	if (site.nodes_live < site.nodes) return 'away';
	return site.holds.length ? 'held' : drained ? 'drained' : 'wanted';
}
export function ofNode(node: Node, carried: readonly Deployment[]): Mark {
	if (node.liveness === 'lost' || node.liveness === 'unknown' || node.liveness === 'stale') return 'away';
	const states = carried.flatMap((item) => item.instances.filter((each) => each.node_id === node.id).map((each) => ofInstance(item, each)));
	const worst = states.sort((one, other) => RANK[one] - RANK[other])[0] ?? 'wanted';
	return worst !== 'wanted' ? worst : node.drain !== null && node.drain !== undefined ? 'drained' : 'wanted';
}
export function siteNote(site: Site, behind = 0, drained = 0): string {
	if (!site.reachable) return 'not reachable';
	const [failed, silent] = [site.deployments.FAILED ?? 0, site.nodes - site.nodes_live];
	const changing = CHANGING.reduce((sum, state) => sum + (site.deployments[state] ?? 0), 0);
	const back = site.deployments.ROLLINGBACK ?? 0;
	const found = [failed && `${failed} failed`, back && `${back} rolling back`, behind && `${behind} not on the wanted release`, silent && `${silent} node${silent === 1 ? '' : 's'} not live`, changing && `${changing} changing`, drained && `${drained} drained`, site.holds.length && 'held'];
	return site.problem ?? found.filter(Boolean).join(', ');
}

// What the deploy form asks for: the body of the request, and the command line that asks for the same.
import type { App, AppDetail, DeployRequest, Schema, Setting } from '../types';
import { shellQuoted } from '../words';

const NUMBERS = ['integer', 'double', 'number'];
const listed = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

export class DeployForm {
	appId = $state('');
	name = $state('');
	profile = $state('');
	/** Named sites all at once, or every site with some labels, in waves. */
	way = $state<'sites' | 'waves'>('sites');
	sites = $state<string[]>([]);
	waves = $state({ selector: '', sizes: '', bake: '', threshold: '' });
	placement = $state({ mode: '', count: '', selector: '' });
	policy = $state({ retries: '', rollback: '', deadline: '', unhealthy: '' });
	values = $state<Record<string, string>>({});
	detail = $state.raw<AppDetail | undefined>();

	readonly isWhole: boolean = $derived(Boolean(this.appId) && (this.way === 'sites' ? this.sites.length > 0 : this.waves.selector.trim() !== ''));
	readonly settings: { section: string; settings: Setting[] }[] = $derived.by(() => {
		const sections = this.detail?.configuration?.sections;
		if (sections?.length) return sections.map((each) => ({ section: each.name, settings: each.settings }));
		const names = Object.keys(this.detail?.parameters ?? {});
		return names.length ? [{ section: 'Parameters', settings: names.map((each) => ({ parameter: each, name: each })) }] : [];
	});
	readonly body: DeployRequest = $derived.by(() => ({
		app_id: this.appId, ...(this.profile ? { profile: this.profile } : {}), ...(this.name.trim() ? { name: this.name.trim() } : {}), ...this.#where(), ...this.#placement(), ...this.#policy(), parameters: this.#parameters()
	}));

	schemaOf(setting: Setting): Schema | undefined {
		return this.detail?.configuration?.schema?.find((each) => each.name === setting.schema);
	}
	typeOf(setting: Setting): string {
		return this.schemaOf(setting)?.dataType ?? typeof this.detail?.parameters[setting.parameter]?.value;
	}
	/** Another app has other parameters. */
	choose(appId: string): void {
		[this.appId, this.values, this.profile] = [appId, {}, ''];
	}
	command(app: App | undefined): string {
		if (!app) return 'homeport deploy APP';
		const { placement, policy, waves } = this;
		const where = this.way === 'sites' ? this.sites.map((site) => ['--site', site]) : [['-l', waves.selector], ...listed(waves.sizes).map((size) => ['--wave', size]), ['--bake', waves.bake], ['--threshold', waves.threshold]];
		const options = [
			...where, ['--name', this.name], ['--profile', this.profile], ['--place', placement.mode === 'count' ? placement.count : placement.mode], ['--node-selector', placement.selector], ['--retries', policy.retries], ['--deadline', policy.deadline], ['--on-unhealthy', policy.unhealthy],
			...Object.entries(this.values).filter(([, value]) => value !== '').map(([key, value]) => ['--set', `${key}=${value}`])
		] as [string, string][];
		const said = options.filter(([, value]) => value.trim()).map(([option, value]) => ` ${option} ${shellQuoted(value.trim())}`).join('');
		return `homeport deploy ${shellQuoted(`${app.app_name}@${app.version}`)}${said}${policy.rollback ? ` --${policy.rollback}` : ''}`;
	}

	#where(): Partial<DeployRequest> {
		if (this.way === 'sites') return { sites: this.sites.map((site_id) => ({ site_id })) };
		const { selector, sizes, bake, threshold } = this.waves;
		return { selector: selector.trim(), ...(listed(sizes).length ? { waves: listed(sizes) } : {}), ...(bake.trim() ? { bake: bake.trim() } : {}), ...(threshold.trim() ? { threshold: threshold.trim() } : {}) };
	}
	#placement(): Partial<DeployRequest> {
		const { mode, count, selector } = this.placement;
		const given = { ...(mode ? { mode } : {}), ...(mode === 'count' ? { count: numberOf(count) } : {}), ...(selector.trim() ? { selector: selector.trim() } : {}) };
		return Object.keys(given).length ? { placement: given as DeployRequest['placement'] } : {};
	}
	#policy(): Partial<DeployRequest> {
		const { retries, rollback, deadline, unhealthy } = this.policy;
		const given = { ...(retries.trim() ? { retries: numberOf(retries) } : {}), ...(rollback ? { rollback: rollback === 'rollback' } : {}), ...(deadline.trim() ? { deadline: deadline.trim() } : {}), ...(unhealthy ? { on_unhealthy: unhealthy } : {}) };
		return Object.keys(given).length ? { policy: given as DeployRequest['policy'] } : {};
	}
	#parameters(): NonNullable<DeployRequest['parameters']> {
		const found: NonNullable<DeployRequest['parameters']> = {};
		for (const { settings } of this.settings) for (const setting of settings) {
			const text = this.values[setting.parameter];
			if (text === undefined || text === '') continue;
			const type = this.typeOf(setting);
			found[setting.parameter] = NUMBERS.includes(type) ? numberOf(text) : type === 'boolean' && /^(true|false)$/.test(text) ? text === 'true' : text;
		}
		return found;
	}
}

/** What is not a number goes to the server as it is, whose sentence then stands at the field. */
function numberOf(text: string): number {
	return text.trim() === '' || Number.isNaN(Number(text)) ? (text as unknown as number) : Number(text);
}

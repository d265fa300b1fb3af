// What the form of a job holds, and what it asks for: as the body of a request, and as a command line.
import { Problem } from '../api';
import type { JobType, SubmitJob } from '../types';
import { shellQuoted, words } from '../words';

const SECONDS = '3600', TOKENS = '512';
const lines = (text: string) => text.split('\n').map((each) => each.trim()).filter(Boolean);
const trimmed = (text: string) => text.trim() || undefined;
/** What is not a number goes to the server as it is, whose sentence then stands at the field. */
const numberOf = (text: string): number | undefined => (text.trim() === '' ? undefined : Number.isNaN(Number(text)) ? (text as unknown as number) : Number(text));
const pairs = (text: string) => Object.fromEntries(lines(text).map((each) => { const at = each.indexOf('='); return [at < 0 ? each : each.slice(0, at), each.slice(at + 1)]; }));

export class JobForm {
	site = $state('');
	timeout = $state(SECONDS);
	retries = $state('0');
	command = $state('');
	image = $state('');
	entrypoint = $state('');
	node = $state('');
	selector = $state('');
	cpu = $state('');
	memory = $state('');
	gpus = $state('');
	environment = $state('');
	secrets = $state('');
	artifacts = $state('');
	model = $state('');
	prompt = $state('');
	tokens = $state(TOKENS);

	/** Whether there is enough to ask the server. */
	isWhole(type: JobType): boolean {
		return Boolean(type === 'inference' ? this.model && this.prompt.trim() : type === 'container' ? this.image.trim() : this.command.trim());
	}
	/** Lines that are none, which no body could hold. */
	problem(type: JobType): Problem | null {
		const odd = type === 'inference' ? undefined : lines(this.environment).find((each) => !/^[^=\s]+=/.test(each));
		return odd === undefined ? null : new Problem(1, 'The environment is not valid.', null, [{ field: 'environment', message: `“${odd}” has no value: write NAME=value.` }]);
	}
	body(type: JobType): SubmitJob {
		const all = { type, site: trimmed(this.site), timeout_seconds: numberOf(this.timeout), retries: numberOf(this.retries) };
		if (type === 'inference') return { ...all, inference: { model: this.model, prompt: this.prompt, max_tokens: numberOf(this.tokens) } };
		return {
			...all, ...(type === 'container' ? { image: this.image.trim(), entrypoint: this.entrypoint.trim() } : {}),
			command: words(this.command), node: trimmed(this.node), selector: trimmed(this.selector), cpu: numberOf(this.cpu), memory: this.memory.trim(), gpus: numberOf(this.gpus),
			environment: pairs(this.environment), secrets: pairs(this.secrets), artifacts: lines(this.artifacts)
		};
	}
	line(type: JobType): string {
		const isInference = type === 'inference', ofContainer = (text: string) => (type === 'container' ? text : ''), ofNodes = (text: string) => (isInference ? '' : text);
		const options = [
			...(isInference ? [['--model', this.model || 'MODEL'], ['--max-tokens', this.tokens === TOKENS ? '' : this.tokens]] : []), ['--image', ofContainer(this.image || 'IMAGE')], ['--entrypoint', ofContainer(this.entrypoint)],
			['--site', this.site], ['--node', ofNodes(this.node)], ['-l', ofNodes(this.selector)], ['--cpu', ofNodes(this.cpu)], ['--memory', ofNodes(this.memory)], ['--gpu', ofNodes(this.gpus)],
			['--timeout', this.timeout === SECONDS || !this.timeout.trim() ? '' : `${this.timeout.trim()}s`], ['--retries', this.retries === '0' ? '' : this.retries],
			...lines(ofNodes(this.environment)).map((each) => ['--env', each]), ...lines(ofNodes(this.secrets)).map((each) => ['--secret', each]), ...lines(ofNodes(this.artifacts)).map((each) => ['--artifact', each])
		] as [string, string][];
		const last = isInference ? shellQuoted(this.prompt.trim() || 'PROMPT') : this.command.trim() || (type === 'container' ? '' : 'COMMAND');
		return `homeport jobs run${options.filter(([, value]) => value.trim()).map(([name, value]) => ` ${name} ${shellQuoted(value.trim())}`).join('')}${last ? ` -- ${last}` : ''}`;
	}
}

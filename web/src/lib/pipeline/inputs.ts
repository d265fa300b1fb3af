// Inputs of a pipeline as somebody types them, and as a run is given them.
import type { PipelineInput } from '../types';
import { shellQuoted } from '../words';

/** What was typed, as the input's type; a text that cannot be read as one goes as it is, and the server says what is wrong with it. */
export function valuesOf(inputs: readonly PipelineInput[], typed: Readonly<Record<string, string>>): Record<string, unknown> {
	return Object.fromEntries(inputs.filter(({ name }) => (typed[name] ?? '') !== '').map(({ name, type }) => [name, type === 'string' ? typed[name] : parsed(typed[name]!)]));
}

export const optionsOf = (inputs: readonly PipelineInput[], typed: Readonly<Record<string, string>>): string => inputs.filter(({ name }) => (typed[name] ?? '') !== '').map(({ name }) => ` --input ${shellQuoted(`${name}=${typed[name]}`)}`).join('');

function parsed(text: string): unknown {
	try {
		return JSON.parse(text);
	} catch {
		return text;
	}
}

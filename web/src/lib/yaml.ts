// What the API answers, as YAML: the same that `-o yaml` prints, for people who read it so.
const PLAIN = /^[A-Za-z_/][\w./@+-]*( [\w./@+-]+)*$/;
const RESERVED = /^(true|false|null|yes|no|on|off|y|n|~)$/i;

function scalar(value: unknown): string {
	if (typeof value !== 'string') return JSON.stringify(value) ?? 'null';
	return PLAIN.test(value) && !RESERVED.test(value) ? value : JSON.stringify(value);
}

export function yaml(value: unknown, indent = ''): string {
	if (Array.isArray(value)) {
		if (!value.length) return `${indent}[]\n`;
		return value.map((item) => (isBranch(item) ? `${indent}- ${yaml(item, `${indent}  `).slice(indent.length + 2)}` : `${indent}- ${leaf(item)}\n`)).join('');
	}
	if (value !== null && typeof value === 'object') {
		const entries = Object.entries(value);
		if (!entries.length) return `${indent}{}\n`;
		return entries.map(([key, item]) => (isBranch(item) ? `${indent}${scalar(key)}:\n${yaml(item, `${indent}  `)}` : `${indent}${scalar(key)}: ${leaf(item)}\n`)).join('');
	}
	return `${indent}${scalar(value)}\n`;
}

const isBranch = (value: unknown): boolean => (Array.isArray(value) ? value.length > 0 : value !== null && typeof value === 'object' && Object.keys(value).length > 0);
const leaf = (value: unknown): string => (Array.isArray(value) ? '[]' : value !== null && typeof value === 'object' ? '{}' : scalar(value));

// Ages as people say them. One clock for the whole page, so that they tick together.
class Clock {
	now = $state(Date.now());
	constructor() {
		setInterval(() => (this.now = Date.now()), 1000);
	}
}
export const clock = new Clock();

export function age(at: string, now: number): string {
	const seconds = Math.max(0, Math.round((now - new Date(at).getTime()) / 1000));
	if (seconds < 60) return `${seconds} s`;
	if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
	if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
	return `${Math.floor(seconds / 86400)} d`;
}

/** How long until then. */
export const ahead = (at: string, now: number) => `in ${age(new Date(now).toISOString(), new Date(at).getTime())}`;

export function exact(at: string): string {
	const moment = new Date(at);
	return `${moment.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'long' })} (${moment.toISOString()})`;
}

export function size(bytes: number): string {
	const units = ['B', 'kB', 'MB', 'GB', 'TB'];
	let value = bytes, unit = 0;
	for (; value >= 1000 && unit < units.length - 1; unit += 1) value /= 1000;
	return `${value >= 10 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

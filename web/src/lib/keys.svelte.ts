// Whether single letters are keys. Who dictates, or types where nothing is to be typed, switches them off.
const STORED = 'homeport-letter-keys';

class Keys {
	areOn = $state(localStorage.getItem(STORED) !== 'off');
	set(areOn: boolean): void {
		this.areOn = areOn;
		localStorage.setItem(STORED, areOn ? 'on' : 'off');
	}
	/** Not with another key held, and not where somebody types. */
	isLetter(event: KeyboardEvent): boolean {
		const isTyped = event.target instanceof HTMLElement && event.target.closest('input:not([type=checkbox]), select, textarea, dialog') !== null;
		return this.areOn && !isTyped && !event.ctrlKey && !event.metaKey && !event.altKey;
	}
}
export const keys = new Keys();

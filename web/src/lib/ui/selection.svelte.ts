// Rows that are chosen for one action on all of them. What leaves the list is no longer chosen.
import { SvelteSet } from 'svelte/reactivity';

export class Selection<Item> {
	#chosen = new SvelteSet<string>();
	#last: string | null = null;
	readonly items: Item[] = $derived.by(() => this.all().filter((item) => this.#chosen.has(this.key(item))));
	readonly isAll: boolean = $derived.by(() => this.all().length > 0 && this.items.length === this.all().length);

	constructor(readonly all: () => readonly Item[], readonly key: (item: Item) => string) {}
	has(item: Item): boolean {
		return this.#chosen.has(this.key(item));
	}
	/** With a range, everything between this row and the one before it follows. */
	set(item: Item, isChosen: boolean, isRange = false): void {
		const keys = this.all().map(this.key);
		const here = keys.indexOf(this.key(item));
		const from = isRange && this.#last !== null ? keys.indexOf(this.#last) : here;
		for (const key of keys.slice(Math.min(here, from < 0 ? here : from), Math.max(here, from) + 1)) this.#set(key, isChosen);
		this.#last = this.key(item);
	}
	setAll(isChosen: boolean): void {
		for (const item of this.all()) this.#set(this.key(item), isChosen);
	}
	clear(): void {
		this.#chosen.clear();
	}
	#set(key: string, isChosen: boolean): void {
		if (isChosen) this.#chosen.add(key);
		else this.#chosen.delete(key);
	}
}

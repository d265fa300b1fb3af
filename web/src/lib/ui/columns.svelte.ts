// Which columns of a table are shown. The browser remembers it; the first columns, which name the thing and its state, always are.
export interface Column { id: string; name: string; width?: string; isFirst?: boolean }

export class Columns {
	#hidden = $state.raw<ReadonlySet<string>>(new Set());
	readonly isChanged: boolean = $derived.by(() => this.#text() !== this.#text(this.#usual));
	#usual: ReadonlySet<string>;
	/** `isFirst`: shown until somebody hides it. */
	constructor(readonly table: string, readonly all: readonly Column[]) {
		this.#usual = new Set(all.filter((each) => !each.isFirst).map((each) => each.id));
		const stored = localStorage.getItem(this.#key);
		this.#hidden = stored === null ? this.#usual : new Set(stored.split(',').filter(Boolean));
	}
	get #key(): string {
		return `homeport-columns-${this.table}`;
	}
	#text(hidden = this.#hidden): string {
		return this.all.map((each) => each.id).filter((id) => hidden.has(id)).join();
	}
	get shown(): Column[] {
		return this.all.filter((each) => !this.#hidden.has(each.id));
	}
	has(id: string): boolean {
		return !this.#hidden.has(id);
	}
	set(id: string, isShown: boolean): void {
		this.#hidden = new Set([...this.#hidden].filter((each) => each !== id).concat(isShown ? [] : [id]));
		localStorage.setItem(this.#key, this.#text());
	}
	reset(): void {
		this.#hidden = this.#usual;
		localStorage.removeItem(this.#key);
	}
}

// The outcome of one's own actions. What went wrong stays until it is read.
interface Toast { id: number; tone: 'ok' | 'bad'; text: string }
class Toasts {
	shown = $state<Toast[]>([]);
	#last = 0;
	add(tone: 'ok' | 'bad', text: string): void {
		const id = (this.#last += 1);
		this.shown.push({ id, tone, text });
		if (tone === 'ok') setTimeout(() => this.remove(id), 6000);
	}
	remove(id: number): void {
		this.shown = this.shown.filter((toast) => toast.id !== id);
	}
}
export const toasts = new Toasts();

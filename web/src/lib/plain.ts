// Escape sequences are for terminals; in a page they would be noise.
export function plain(text: string): string {
	return text.replace(/\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r(?!\n)/g, '');
}

// Text into the clipboard. A browser allows that to a page in front that came over TLS or from this machine; elsewhere a chosen text can
// still be copied.
export async function copy(text: string): Promise<boolean> {
	try {
		await navigator.clipboard.writeText(text);
		return true;
	} catch {
		const field = document.createElement('textarea');
		field.value = text;
		field.className = 'hidden';
		(document.querySelector('dialog[open]') ?? document.body).append(field);
		field.select();
		const isCopied = document.execCommand('copy');
		field.remove();
		return isCopied;
	}
}

// Escape sequences are for terminals; in a page they would be noise. Each step of a progress bar is a line, as in the
// command line. A part may end within "\r\n" or a sequence: give what came before once more, with what follows.
export function plain(text: string): string {
	return text.replace(/\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07/g, '').replace(/\r(?!\n|$)/g, '\n');
}

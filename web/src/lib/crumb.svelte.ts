// What the breadcrumb and the window call the thing of a page, where the address has an id alone.
class Crumb {
	text = $state('');
	/** For an effect: until what is returned is called. */
	name(text: string): () => void {
		this.text = text;
		return () => (this.text = '');
	}
}
export const crumb = new Crumb();

// A browser has six connections to a server for all its tabs together. A stream keeps one, so a tab that nobody looks at lets go of it, and
// resumes where it was when it is looked at again.
function untilShown(signal: AbortSignal): Promise<void> {
	if (!document.hidden || signal.aborted) return Promise.resolve();
	return new Promise((resolve) => {
		const looked = () => {
			if (document.hidden && !signal.aborted) return;
			document.removeEventListener('visibilitychange', looked);
			signal.removeEventListener('abort', looked);
			resolve();
		};
		document.addEventListener('visibilitychange', looked);
		signal.addEventListener('abort', looked);
	});
}

/** Runs while the page is shown. Answers whether it ended because it is not. */
export async function whileShown(outer: AbortSignal, work: (signal: AbortSignal) => Promise<void>): Promise<boolean> {
	await untilShown(outer);
	const inner = new AbortController();
	const hidden = () => { if (document.hidden) inner.abort(); };
	document.addEventListener('visibilitychange', hidden);
	try {
		await work(AbortSignal.any([outer, inner.signal]));
	} catch (error) {
		if (!inner.signal.aborted) throw error;
	} finally {
		document.removeEventListener('visibilitychange', hidden);
	}
	return inner.signal.aborted;
}

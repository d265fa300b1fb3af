// Who is logged in. The cookie is the browser's; the key that makes it valid is kept by this origin alone.
const STORED = 'homeport-session';

interface Who { key: string; name: string; role: 'viewer' | 'operator' | 'admin'; sites: string[]; expires_at: string }

function stored(): Who | null {
	try {
		const found = JSON.parse(localStorage.getItem(STORED) ?? 'null') as Who | null;
		return found && new Date(found.expires_at) > new Date() ? found : null;
	} catch {
		return null;
	}
}

class Session {
	who = $state<Who | null>(stored());

	constructor() {
		// The cookie is one for all tabs: who logs in or out in one of them does so in all.
		addEventListener('storage', (event) => { if (event.key === STORED || event.key === null) this.who = stored(); });
	}
	headers(): Record<string, string> {
		return this.who ? { 'x-homeport-session': this.who.key } : {};
	}
	may(role: 'viewer' | 'operator' | 'admin'): boolean {
		const order = ['viewer', 'operator', 'admin'];
		return this.who !== null && order.indexOf(this.who.role) >= order.indexOf(role);
	}
	/** An administrator of everything, not of some sites. */
	get isFleetAdmin(): boolean {
		return this.may('admin') && this.who?.sites.length === 0;
	}
	begin(who: Who): void {
		localStorage.setItem(STORED, JSON.stringify(who));
		this.who = who;
	}
	/** `key`: of the session that was refused. One that another tab has begun since is kept, and goes on here. */
	lost(key = this.who?.key): void {
		const now = stored();
		if (now && now.key !== key) {
			this.who = now;
			return;
		}
		localStorage.removeItem(STORED);
		this.who = null;
	}
}

export const session = new Session();
